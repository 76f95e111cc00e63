//! Which CPUs are threads of the same physical core, from /sys/devices/system/cpu/cpuN/topology.

use super::parse_list;
use crate::system_files::SystemFiles;

/// What two CPUs of the same core have in common.
#[derive(PartialEq, Eq)]
enum CoreId {
    /// The list of its CPUs.
    Siblings(Vec<usize>),
    /// Package and number of the core within it, where the kernel gives no list.
    Number(i64, i64),
    /// Nothing is known: a core of its own.
    Alone(usize),
}

/// The given CPUs by physical core: each inner list has the CPUs of one core, ascending; cores are in the order of their
/// first CPU. A CPU about which the kernel says nothing (it is offline, or /sys is hidden) counts as a core of its own.
#[must_use]
pub fn cores(files: &SystemFiles, cpus: &[usize]) -> Vec<Vec<usize>> {
    let mut cores: Vec<(CoreId, Vec<usize>)> = Vec::new();
    for &cpu in cpus {
        let id = core_id(files, cpu);
        match cores.iter_mut().find(|(known, _)| *known == id) {
            Some((_, members)) => members.push(cpu),
            None => cores.push((id, vec![cpu])),
        }
    }
    cores.into_iter().map(|(_, members)| members).collect()
}

/// The CPUs in the order in which shards take them: the first of every core, then the second of every core that has one,
/// and so on. Also how many cores there are.
#[must_use]
pub fn cores_first(files: &SystemFiles, cpus: &[usize]) -> (Vec<usize>, usize) {
    let cores = cores(files, cpus);
    let threads_max = cores.iter().map(Vec::len).max().unwrap_or(0);
    let rounds = (0..threads_max).flat_map(|nth| cores.iter().filter_map(move |core| core.get(nth)));
    (rounds.copied().collect(), cores.len())
}

fn core_id(files: &SystemFiles, cpu: usize) -> CoreId {
    let file = |name: &str| format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}");
    let siblings = files.text(&file("thread_siblings_list")).and_then(|list| parse_list(&list).ok());
    if let Some(siblings) = siblings.filter(|siblings| siblings.contains(&cpu)) {
        return CoreId::Siblings(siblings);
    }
    let number = |name| files.number(&file(name)).filter(|&id| id >= 0);
    match (number("physical_package_id"), number("core_id")) {
        (package, Some(core)) => CoreId::Number(package.unwrap_or(0), core),
        (_, None) => CoreId::Alone(cpu),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_files::fake::Tree;

    /// A machine with these lists of siblings, CPU by CPU; an empty text for a CPU without a topology.
    fn machine(label: &str, siblings: &[&str]) -> Tree {
        let paths: Vec<String> = (0..siblings.len())
            .map(|cpu| format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
            .collect();
        let pairs = paths.iter().zip(siblings).filter(|(_, list)| !list.is_empty());
        Tree::new(label, &pairs.map(|(path, list)| (path.as_str(), *list)).collect::<Vec<_>>())
    }

    #[test]
    fn threads_of_a_core_are_found_however_they_are_numbered() {
        // Intel servers number the second threads after all cores, others side by side.
        let far = machine("smt-far", &["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"]);
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(cores(&far.files, &all), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(cores_first(&far.files, &all), (vec![0, 1, 2, 3, 4, 5, 6, 7], 4));
        let near = machine("smt-near", &["0-1", "0-1", "2-3", "2-3"]);
        assert_eq!(cores_first(&near.files, &[0, 1, 2, 3]), (vec![0, 2, 1, 3], 2));
    }

    #[test]
    fn only_the_given_cpus_count() {
        let near = machine("smt-mask", &["0-1", "0-1", "2-3", "2-3"]);
        assert_eq!(
            cores_first(&near.files, &[1, 2]),
            (vec![1, 2], 2),
            "the second thread stands for its core"
        );
        assert_eq!(cores_first(&near.files, &[0, 1]), (vec![0, 1], 1));
        assert_eq!(cores_first(&near.files, &[]), (vec![], 0));
    }

    #[test]
    fn without_smt_every_cpu_is_a_core() {
        let plain = machine("no-smt", &["0", "1", "2"]);
        assert_eq!(cores_first(&plain.files, &[0, 1, 2]), (vec![0, 1, 2], 3));
    }

    #[test]
    fn a_hybrid_machine_has_cores_with_and_without_threads() {
        let hybrid = machine("hybrid", &["0-1", "0-1", "2-3", "2-3", "4", "5"]);
        assert_eq!(cores_first(&hybrid.files, &[0, 1, 2, 3, 4, 5]), (vec![0, 2, 4, 5, 1, 3], 4));
    }

    #[test]
    fn an_offline_sibling_or_a_hidden_sysfs_hurts_nobody() {
        // CPU 2 is offline: no topology directory, and its former sibling is alone.
        let offline = machine("offline", &["0-1", "0-1", "", "3"]);
        assert_eq!(cores_first(&offline.files, &[0, 1, 3]), (vec![0, 3, 1], 2));
        let hidden = machine("hidden", &[]);
        assert_eq!(cores_first(&hidden.files, &[0, 1]), (vec![0, 1], 2));
    }

    #[test]
    fn packages_with_equal_core_numbers_are_told_apart() {
        let path = |cpu: usize, name: &str| format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}");
        let mut files = Vec::new();
        for (cpu, package, core) in
            [(0, "0", "0"), (1, "0", "1"), (2, "1", "0"), (3, "1", "1"), (4, "0", "0")]
        {
            files.push((path(cpu, "physical_package_id"), package));
            files.push((path(cpu, "core_id"), core));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let tree = Tree::new("packages", &files);
        assert_eq!(cores(&tree.files, &[0, 1, 2, 3, 4]), [vec![0, 4], vec![1], vec![2], vec![3]]);
    }
}
