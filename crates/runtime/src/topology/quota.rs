//! How much processor time the cgroups of this process allow: `cpu.max` of version 2, `cpu.cfs_quota_us` of version 1.
//!
//! A quota is no set of CPUs: it is time per period on whatever CPUs there are, shared by all threads of the group.

use crate::system_files::SystemFiles;

/// Processor time per time, in thousandths of a CPU: 1500 is one and a half CPUs.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CpuQuota {
    /// Thousandths of a CPU.
    pub millicpus: u64,
}

impl CpuQuota {
    /// The number of CPUs that it keeps busy, rounded up.
    #[must_use]
    pub fn cpus(self) -> usize {
        usize::try_from(self.millicpus.div_ceil(1000)).unwrap_or(usize::MAX).max(1)
    }
}

impl std::fmt::Display for CpuQuota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.millicpus as f64 / 1000.0)
    }
}

/// A hierarchy of cgroups: where it is mounted, and which group is at that place.
struct Mount {
    point: String,
    root: String,
}

/// The tightest quota of the process's cgroup and those above it; `None`: there is none, or it cannot be seen.
#[must_use]
pub fn cpu_quota(files: &SystemFiles) -> Option<CpuQuota> {
    let groups = files.text("/proc/self/cgroup")?;
    let mounts = files.text("/proc/self/mountinfo")?;
    let quotas = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.is_empty() {
            let mount = find_mount(&mounts, |kind, _| kind == "cgroup2")?;
            tightest(&mount, group, |directory| quota_v2(files, directory))
        } else {
            let has_cpu = |list: &str| list.split(',').any(|name| name == "cpu");
            if !has_cpu(controllers) {
                return None;
            }
            let mount = find_mount(&mounts, |kind, options| kind == "cgroup" && has_cpu(options))?;
            tightest(&mount, group, |directory| quota_v1(files, directory))
        }
    });
    quotas.min()
}

/// A line is `36 35 98:0 /root /point options [optional fields] - type source options`.
fn find_mount(mounts: &str, is_wanted: impl Fn(&str, &str) -> bool) -> Option<Mount> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        if !is_wanted(kind.next()?, kind.nth(1).unwrap_or_default()) {
            return None;
        }
        let mut place = place.split(' ').skip(3);
        Some(Mount { root: place.next()?.to_owned(), point: place.next()?.to_owned() })
    })
}

/// Walks from the group up to the top of what is mounted. A group outside of it (a container sees no more than its own
/// part) is taken for the top.
fn tightest(mount: &Mount, group: &str, quota: impl Fn(&str) -> Option<CpuQuota>) -> Option<CpuQuota> {
    let root = mount.root.trim_end_matches('/');
    let below = group.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let mut below = below.filter(|rest| !rest.contains("/..")).unwrap_or("").trim_end_matches('/');
    let mut least = quota(&format!("{}{below}", mount.point));
    while let Some((parent, _)) = below.rsplit_once('/') {
        below = parent;
        let here = quota(&format!("{}{below}", mount.point));
        least = [least, here].into_iter().flatten().min();
    }
    least
}

/// `max 100000` or `150000 100000`: time per period, both in microseconds.
fn quota_v2(files: &SystemFiles, directory: &str) -> Option<CpuQuota> {
    let text = files.text(&format!("{directory}/cpu.max"))?;
    let (quota_us, period_us) = text.split_once(' ')?;
    ratio(quota_us.parse().ok()?, period_us.parse().ok()?)
}

/// Two files; the quota is -1 where there is none.
fn quota_v1(files: &SystemFiles, directory: &str) -> Option<CpuQuota> {
    let number = |name: &str| files.number(&format!("{directory}/{name}"));
    ratio(u64::try_from(number("cpu.cfs_quota_us")?).ok()?, u64::try_from(number("cpu.cfs_period_us")?).ok()?)
}

fn ratio(quota_us: u64, period_us: u64) -> Option<CpuQuota> {
    Some(CpuQuota { millicpus: quota_us.checked_mul(1000)?.checked_div(period_us)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_files::fake::Tree;

    const V2_MOUNT: &str = "25 1 0:21 / /proc rw - proc proc rw\n\
        30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";

    fn quota(label: &str, files: &[(&str, &str)]) -> Option<u64> {
        let tree = Tree::new(label, files);
        cpu_quota(&tree.files).map(|quota| quota.millicpus)
    }

    #[test]
    fn version_2_takes_the_tightest_group_on_the_way_up() {
        let files = [
            ("proc/self/cgroup", "0::/system.slice/corelane.service"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/system.slice/corelane.service/cpu.max", "400000 100000"),
            ("sys/fs/cgroup/system.slice/cpu.max", "150000 100000"),
        ];
        assert_eq!(quota("v2-tight", &files), Some(1500));
        assert_eq!(quota("v2-own", &files[..3]), Some(4000));
        assert_eq!(quota("v2-none", &files[..2]), None);
        let unlimited = [files[0], files[1], ("sys/fs/cgroup/system.slice/cpu.max", "max 100000")];
        assert_eq!(quota("v2-max", &unlimited), None);
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_top() {
        let namespaced = [
            ("proc/self/cgroup", "0::/"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/cpu.max", "50000 100000"),
        ];
        assert_eq!(quota("v2-namespace", &namespaced), Some(500));
        let mount = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw";
        let bound = [("proc/self/cgroup", "0::/docker/abc"), ("proc/self/mountinfo", mount), namespaced[2]];
        assert_eq!(quota("v2-bound", &bound), Some(500));
        let outside =
            [("proc/self/cgroup", "0::/../other"), ("proc/self/mountinfo", V2_MOUNT), namespaced[2]];
        assert_eq!(quota("v2-outside", &outside), Some(500));
    }

    #[test]
    fn version_1_has_two_files_and_minus_one() {
        let mount = "33 32 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            34 32 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset";
        let files = |us| {
            [
                ("proc/self/cgroup", "9:cpuset:/x\n4:cpu,cpuacct:/x/y\n0::/z"),
                ("proc/self/mountinfo", mount),
                ("sys/fs/cgroup/cpu,cpuacct/x/y/cpu.cfs_quota_us", "-1"),
                ("sys/fs/cgroup/cpu,cpuacct/x/y/cpu.cfs_period_us", "100000"),
                ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", us),
                ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "50000"),
            ]
        };
        assert_eq!(quota("v1-set", &files("125000")), Some(2500));
        assert_eq!(quota("v1-none", &files("-1")), None);
    }

    #[test]
    fn parts_of_a_cpu_count_as_one() {
        for (millicpus, cpus, text) in
            [(0, 1, "0"), (1, 1, "0.001"), (1000, 1, "1"), (1001, 2, "1.001"), (2500, 3, "2.5")]
        {
            let quota = CpuQuota { millicpus };
            assert_eq!((quota.cpus(), quota.to_string().as_str()), (cpus, text));
        }
        assert_eq!(ratio(1, 0), None);
    }
}
