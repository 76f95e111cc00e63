//! Which CPUs the threads of the shards run on: asked of the kernel, compared with what INFO says.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::server::{self, Server};
use crate::server_info;

/// What the kernel says of the CPUs of the threads `shard-0`, `shard-1` and so on, in order. The helper threads of a shard bear
/// its name too; they are younger.
fn cpus_of_shards(server: &Server) -> Vec<String> {
    let tasks = format!("/proc/{}/task", server.pid());
    let mut shards = Vec::new();
    for task in fs::read_dir(tasks).expect("the threads") {
        let task = task.expect("a thread").path();
        let read = |file| fs::read_to_string(task.join(file)).unwrap_or_default();
        if let Some(shard) = read("comm").trim().strip_prefix("shard-") {
            let status = read("status");
            let cpus =
                status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a mask");
            let thread = task.file_name().map(|name| name.to_string_lossy().into_owned());
            shards.push((number(shard), number(&thread.expect("a number")), cpus.trim().to_owned()));
        }
    }
    shards.sort_unstable();
    shards.dedup_by_key(|(shard, ..)| *shard);
    shards.into_iter().map(|(.., cpus)| cpus).collect()
}

/// As [`Server::ours_with`], but it chooses the number of shards.
fn with_default_shards(flags: &[&str]) -> Server {
    Server::start("corelane", |port, dir| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]).args(flags).current_dir(dir);
        command
    })
}

#[test]
fn shards_run_where_the_placement_says() {
    if server::stand_in() {
        return;
    }
    for placement in ["physical", "logical", "float"] {
        let server = with_default_shards(&["--placement", placement]);
        let mut client = server.client();
        let info = server_info(&mut client);
        assert_eq!(info["placement"], placement);
        let allowed = &info["allowed_cpus"];
        let available = if placement == "logical" { count(allowed) } else { number(&info["physical_cores"]) };
        let quota =
            info["cpu_quota"].parse::<f64>().map_or(usize::MAX, |quota| quota.ceil().max(1.0) as usize);
        let cpus = cpus_of_shards(&server);
        assert_eq!(cpus.len(), available.min(quota), "{info:?}");
        assert_eq!(cpus.len(), number(&info["shards"]));
        if placement == "float" || quota < available {
            assert_eq!(info["shard_cpus"], "any");
            assert!(cpus.iter().all(|cpus| cpus == allowed), "{cpus:?} of {allowed}");
        } else {
            assert_eq!(count(&info["shard_cpus"]), cpus.len());
            assert!(cpus.iter().all(|cpus| count(cpus) == 1), "{cpus:?}");
            let lines = client.run("INFO shards").text();
            for (shard, cpu) in cpus.iter().enumerate() {
                assert!(lines.contains(&format!("shard{shard}:cpu={cpu},")), "{lines}");
            }
        }
    }
}

/// A program that wants nothing but one CPU.
struct Hog(std::process::Child);

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_shard_leaves_a_cpu_that_others_use() {
    if server::stand_in() || !server::installed("taskset", "--version") {
        return;
    }
    let server = with_default_shards(&[]);
    let info = server_info(&mut server.client());
    let (allowed, bound) = (info["allowed_cpus"].clone(), info["shard_cpus"].clone());
    let (first, last) =
        (cpus_of_shards(&server)[0].clone(), allowed.rsplit([',', '-']).next().expect("a number"));
    if count(&allowed) < 2 || bound == "any" || first == last {
        return eprintln!("skipped: it takes two CPUs, and no quota");
    }
    assert_eq!(crowded(&server, &first, Duration::from_secs(60)), allowed);
    // Whoever names the CPUs keeps them, and whoever binds the threads from outside.
    let server = with_default_shards(&["--cpus", &bound]);
    assert_eq!(crowded(&server, &first, Duration::from_secs(3)), first);
    let server = with_default_shards(&[]);
    let pid = server.pid().to_string();
    let bind = Command::new("taskset").args(["-a", "-p", "-c", last, &pid]).output().expect("taskset");
    assert!(bind.status.success(), "{bind:?}");
    assert_eq!(crowded(&server, last, Duration::from_secs(3)), last);
}

/// Has the first shard serve for at most that time, beside a program that wants the CPU for itself; returns the CPUs that it may run on
/// then.
fn crowded(server: &Server, cpu: &str, patience: Duration) -> String {
    let hog = Command::new("taskset").args(["-c", cpu, "sh", "-c", "while :; do :; done"]).spawn();
    let _hog = Hog(hog.expect("a shell"));
    let (began, mut client, mut away) = (Instant::now(), server.client(), false);
    while !away && began.elapsed() < patience {
        (0..100).for_each(|n| assert_eq!(client.run(&format!("SET key:{n} v")).text(), "OK"));
        let shards = client.run("INFO shards").text();
        away = shards.lines().any(|line| line.starts_with("shard0:") && line.ends_with("away=1"));
    }
    cpus_of_shards(server)[0].clone()
}

#[test]
fn named_cpus_get_a_shard_each_and_too_many_shards_are_not_bound() {
    if server::stand_in() {
        return;
    }
    let server = with_default_shards(&["--placement", "float"]);
    let allowed = server_info(&mut server.client())["allowed_cpus"].clone();
    drop(server);
    let server = with_default_shards(&["--cpus", &allowed]);
    assert_eq!(server_info(&mut server.client())["shard_cpus"], allowed);
    assert_eq!(cpus_of_shards(&server).len(), count(&allowed));
    drop(server);
    let shards = count(&allowed) + 1;
    let server = Server::ours(shards);
    let cpus = cpus_of_shards(&server);
    assert!(cpus.len() == shards && cpus.iter().all(|cpus| *cpus == allowed), "{cpus:?}");
    let lines = server.client().run("INFO shards").text();
    assert_eq!(lines.matches(":cpu=-1,").count(), shards, "{lines}");
}

#[test]
fn shards_that_are_not_bound_stay_on_the_cpus_that_were_named() {
    if server::stand_in() {
        return;
    }
    let server = Server::ours(1);
    let allowed = server_info(&mut server.client())["allowed_cpus"].clone();
    drop(server);
    let first = allowed.split([',', '-']).next().expect("a cpu");
    for (shards, flags) in [(2, &["--cpus", first][..]), (1, &["--cpus", first, "--placement", "float"])] {
        let server = Server::ours_with(shards, flags);
        assert_eq!(cpus_of_shards(&server), vec![first; shards], "{flags:?} of {allowed}");
        let info = server_info(&mut server.client());
        assert_eq!(info["shard_cpus"], first);
        assert!(server.log().contains(&format!(" on any cpu of {first}, ready")), "{}", server.log());
    }
}

#[test]
fn an_affinity_mask_is_respected() {
    if server::stand_in() || !server::installed("taskset", "--version") {
        return;
    }
    let all = with_default_shards(&[]);
    let allowed = server_info(&mut all.client())["allowed_cpus"].clone();
    drop(all);
    let last = allowed.rsplit([',', '-']).next().expect("a number").to_owned();
    let server = Server::start("corelane under taskset", |port, dir| {
        let mut command = Command::new("taskset");
        command.args(["-c", &last, env!("CARGO_BIN_EXE_corelane")]);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]).current_dir(dir);
        command
    });
    let info = server_info(&mut server.client());
    assert_eq!((&info["allowed_cpus"], &info["shards"]), (&last, &"1".to_owned()));
    assert_eq!(cpus_of_shards(&server), [last]);
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

/// How many CPUs a list such as `0-3,8` names.
fn count(list: &str) -> usize {
    let sizes = list.split(',').map(|item| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        number(last) + 1 - number(first)
    });
    sizes.sum()
}
