//! What kind of machine this is, for the head of a report and for comparing runs of several machines.

use corelane_runtime::preflight::kernel_release;
use corelane_runtime::system_files::SystemFiles;
use serde::{Deserialize, Serialize};

/// A machine as it describes itself. Sizes in bytes; 0 or an empty text where it does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) host: String,
    pub(crate) model: String,
    pub(crate) mhz: f64,
    pub(crate) cpus: usize,
    pub(crate) cores: usize,
    pub(crate) threads_per_core: usize,
    pub(crate) l1d: u64,
    pub(crate) l1i: u64,
    pub(crate) l2: u64,
    pub(crate) l3: u64,
    pub(crate) governor: String,
    pub(crate) virtualisation: String,
    pub(crate) kernel: String,
}

/// A size such as `48K` in sysfs.
fn size(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    Some(digits.parse::<u64>().ok()? * factor)
}

/// A size for people.
pub(crate) fn shown(bytes: u64) -> String {
    match bytes {
        0 => "unknown".to_owned(),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Self {
        Self::read(&SystemFiles::real())
    }

    fn read(files: &SystemFiles) -> Self {
        let cpuinfo = files.text("/proc/cpuinfo").unwrap_or_default();
        let fields = |name: &'static str| {
            let values = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            values.filter(move |(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
        };
        let cpus = fields("processor").count().max(1);
        let mut cores: Vec<String> = (0..cpus)
            .filter_map(|cpu| {
                files.text(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
            })
            .collect();
        cores.sort_unstable();
        cores.dedup();
        let cores = if cores.is_empty() { cpus } else { cores.len() };
        let mut machine = Self {
            host: files.text("/proc/sys/kernel/hostname").unwrap_or_default(),
            model: fields("model name").next().unwrap_or_default(),
            mhz: clock_mhz(files).or_else(|| fields("cpu MHz").next()?.parse().ok()).unwrap_or(0.0),
            cpus,
            cores,
            threads_per_core: cpus.div_ceil(cores),
            governor: files.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").unwrap_or_default(),
            virtualisation: virtualisation(files, &cpuinfo),
            kernel: kernel_release(),
            ..Self::default()
        };
        machine.read_caches(files);
        machine
    }

    fn read_caches(&mut self, files: &SystemFiles) {
        const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";
        for index in files.names(CACHES).iter().filter(|name| name.starts_with("index")) {
            let field = |name: &str| files.text(&format!("{CACHES}/{index}/{name}")).unwrap_or_default();
            let Some(bytes) = size(&field("size")) else { continue };
            match (field("level").as_str(), field("type").as_str()) {
                ("1", "Data") => self.l1d = bytes,
                ("1", "Instruction") => self.l1i = bytes,
                ("2", _) => self.l2 = bytes,
                ("3", _) => self.l3 = bytes,
                _ => {}
            }
        }
    }

    /// Lines for the head of a report.
    pub(crate) fn lines(&self) -> [String; 3] {
        let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
        [
            format!("# {}, {:.0} MHz, {}", known(&self.model), self.mhz, self.kernel),
            format!(
                "# {} CPUs, {} cores, {} per core, L1d {}, L1i {}, L2 {}, L3 {}",
                self.cpus,
                self.cores,
                if self.threads_per_core == 1 {
                    "1 thread".to_owned()
                } else {
                    format!("{} threads", self.threads_per_core)
                },
                shown(self.l1d),
                shown(self.l1i),
                shown(self.l2),
                shown(self.l3)
            ),
            format!("# governor {}, virtualisation {}", known(&self.governor), known(&self.virtualisation)),
        ]
    }
}

fn clock_mhz(files: &SystemFiles) -> Option<f64> {
    let khz = files.number("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq")?;
    Some(khz as f64 / 1000.0)
}

/// `none`, or what says that this is not the bare machine.
fn virtualisation(files: &SystemFiles, cpuinfo: &str) -> String {
    let flagged = cpuinfo
        .lines()
        .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"));
    let product = ["sys_vendor", "product_name"]
        .map(|name| files.text(&format!("/sys/class/dmi/id/{name}")).unwrap_or_default())
        .join(" ");
    match (files.text("/sys/hypervisor/type"), flagged) {
        (Some(kind), _) => kind,
        (None, true) if product.trim().is_empty() => "a hypervisor".to_owned(),
        (None, true) => format!("a hypervisor ({})", product.trim()),
        (None, false) => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        assert_eq!(
            (size("48K"), size("32M"), size("512"), size("x")),
            (Some(48 << 10), Some(32 << 20), Some(512), None)
        );
        assert_eq!(
            (shown(48 << 10), shown(32 << 20), shown(0)),
            ("48 KiB".into(), "32 MiB".into(), "unknown".into())
        );
    }

    #[test]
    fn a_machine_is_described_by_its_files() {
        let root = std::env::temp_dir().join(format!("corelane-machine-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let cpu = |n: u32| {
            format!(
                "processor\t: {n}\nmodel name\t: A CPU\ncpu MHz\t\t: 2500.5\nflags\t\t: fpu hypervisor\n\n"
            )
        };
        write("proc/cpuinfo", &(0..4).map(cpu).collect::<String>());
        for n in 0..4 {
            let siblings = if n % 2 == 0 { "0,2" } else { "1,3" };
            write(&format!("sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list"), siblings);
        }
        for (index, level, kind, bytes) in [
            (0, "1", "Data", "32K"),
            (1, "1", "Instruction", "64K"),
            (2, "2", "Unified", "1M"),
            (3, "3", "Unified", "32768K"),
        ] {
            let file = |name: &str| format!("sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
            write(&file("level"), level);
            write(&file("type"), kind);
            write(&file("size"), bytes);
        }
        let machine = Machine::read(&SystemFiles::below(&root));
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!((machine.cpus, machine.cores, machine.threads_per_core), (4, 2, 2));
        assert_eq!(
            (machine.l1d, machine.l1i, machine.l2, machine.l3),
            (32 << 10, 64 << 10, 1 << 20, 32 << 20)
        );
        assert_eq!((machine.model.as_str(), machine.mhz), ("A CPU", 2500.5));
        assert_eq!(machine.virtualisation, "a hypervisor");
    }
}
