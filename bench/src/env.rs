//! Where a result was taken: everything that explains a figure and can be read (M13).
//!
//! Owns: the environment record. Never does: judge it. Left: `/proc`, `/sys`, `device`, `sys`.
//! Right: `quick`. A field that cannot be read says so in place of a value.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::device::{Device, read_trimmed};
use crate::sys;

/// What stands where nothing could be read.
const UNREADABLE: &str = "not readable";
/// A virtual machine with no more CPUs than this is a small one.
const SMALL_CPUS: usize = 4;

#[derive(Clone, Debug, Serialize)]
pub struct Env {
    /// Facts by name, sorted; unreadable ones say so.
    pub facts: BTreeMap<String, String>,
    /// Facts that weaken every figure of the run.
    pub warnings: Vec<String>,
}

/// Which cores the two ends of a row were given.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cores {
    pub server: Option<usize>,
    pub client: Option<usize>,
}

impl Cores {
    /// The first two CPUs this process may use; with one, both ends share it.
    pub fn choose(allowed: &[usize]) -> Cores {
        let server = allowed.first().copied();
        Cores { server, client: allowed.get(1).copied().or(server) }
    }

    pub fn shared(&self) -> bool {
        self.server == self.client
    }
}

impl Env {
    pub fn collect(device: &Device, cores: Cores, uring: Result<(), String>) -> Env {
        let mut env = Env { facts: BTreeMap::new(), warnings: Vec::new() };
        env.machine(cores);
        env.weigh(std::thread::available_parallelism().map_or(1, usize::from));
        env.limits();
        env.storage(device);
        env.put("io_uring", Some(uring.as_ref().map_or_else(Clone::clone, |()| "usable".into())));
        if let Err(why) = uring {
            env.warnings.push(format!("io_uring cannot be used here ({why})"));
        }
        env
    }

    /// The few facts that a reader of the table needs at once.
    pub fn heading(&self) -> Vec<String> {
        let fact = |name: &str| self.facts.get(name).map_or(UNREADABLE, String::as_str);
        vec![
            format!("{}, kernel {}", fact("cpu"), fact("kernel")),
            format!("hypervisor {}, cores: {}", fact("hypervisor"), fact("cores")),
            format!(
                "{} on {} (model {}, cache {}, fua {}, scheduler {})",
                fact("file system"),
                fact("device"),
                fact("device model"),
                fact("queue write_cache"),
                fact("queue fua"),
                chosen(fact("queue scheduler"))
            ),
        ]
    }

    fn put(&mut self, name: &str, value: Option<String>) {
        self.facts.insert(name.to_string(), value.unwrap_or_else(|| UNREADABLE.to_string()));
    }

    fn file(&mut self, name: &str, path: &str) {
        self.put(name, read_trimmed(Path::new(path)));
    }

    fn machine(&mut self, cores: Cores) {
        self.file("kernel", "/proc/sys/kernel/osrelease");
        self.file("kernel build", "/proc/sys/kernel/version");
        self.put("boot command line", boot_options(read_trimmed(Path::new("/proc/cmdline"))));
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        self.put("cpu", cpu_model(&cpuinfo));
        self.put("cpus online", read_trimmed(Path::new("/sys/devices/system/cpu/online")));
        self.put("hypervisor", hypervisor(&cpuinfo));
        self.put("mitigations", mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")));
        let cpu0 = "/sys/devices/system/cpu/cpu0";
        self.file("governor", &format!("{cpu0}/cpufreq/scaling_governor"));
        self.file("idle driver", "/sys/devices/system/cpu/cpuidle/current_driver");
        self.put("c-states", idle_states(Path::new(&format!("{cpu0}/cpuidle"))));
        self.file("smt", "/sys/devices/system/cpu/smt/control");
        self.file(
            "clock source",
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        );
        let name = |cpu: Option<usize>| cpu.map_or("any".to_string(), |cpu| cpu.to_string());
        let (server, client) = (name(cores.server), name(cores.client));
        self.put("cores", Some(format!("server {server}, client {client}")));
        self.put("network", Some("loopback".to_string()));
        if cores.shared() {
            self.warnings.push("one core: client and server share it".to_string());
        }
    }

    /// M16: what a few shared cores under a hypervisor show is shape.
    fn weigh(&mut self, cpus: usize) {
        let virtual_machine = self.facts.get("hypervisor").is_some_and(|it| it.starts_with("yes"));
        if virtual_machine && cpus <= SMALL_CPUS {
            self.warnings.push("small virtual machine: shape, not figures".to_string());
        }
    }

    fn limits(&mut self) {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        self.put("cpus allowed", field_of(&status, "Cpus_allowed_list"));
        self.put(
            "memlock",
            sys::memlock_limit().ok().map(|bytes| match bytes {
                u64::MAX => "unlimited".to_string(),
                bytes => format!("{bytes} bytes"),
            }),
        );
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        self.put("memory", field_of(&meminfo, "MemTotal"));
        for name in ["dirty_ratio", "dirty_background_ratio", "dirty_bytes"] {
            self.file(&format!("vm.{name}"), &format!("/proc/sys/vm/{name}"));
        }
        for name in ["dirty_background_bytes", "dirty_writeback_centisecs"] {
            self.file(&format!("vm.{name}"), &format!("/proc/sys/vm/{name}"));
        }
        self.file("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled");
        let cgroup = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let dir = cgroup_dir(&cgroup);
        for name in ["cpu.max", "memory.max", "io.max", "cpuset.cpus.effective"] {
            let value = dir.as_ref().and_then(|dir| read_trimmed(&Path::new(dir).join(name)));
            self.put(&format!("cgroup {name}"), Some(value.unwrap_or_else(|| "none set".into())));
        }
        self.put("binary", binary_hash());
        self.put("version", Some(env!("CARGO_PKG_VERSION").to_string()));
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        self.put("build", Some(build.to_string()));
        if cfg!(debug_assertions) {
            self.warnings.push("debug build: the figures say nothing about a release".to_string());
        }
    }

    fn storage(&mut self, device: &Device) {
        self.put("directory", Some(short_path(device.dir())));
        let mount = device.mount.clone();
        self.put("file system", mount.as_ref().map(|mount| mount.fs.clone()));
        self.put("mount source", mount.as_ref().map(|mount| mount.source.clone()));
        let options =
            mount.as_ref().map(|mount| format!("{} | {}", mount.options, mount.super_options));
        self.put("mount options", options.clone());
        self.put("journal", mount.as_ref().map(|mount| journal(&mount.fs, &mount.super_options)));
        let discard = options.map(|all| all.split([',', ' ']).any(|one| one == "discard"));
        self.put("discard", discard.map(|on| if on { "on" } else { "off" }.to_string()));
        let free = sys::free_bytes(device.dir()).ok();
        self.put("free space", free.map(|bytes| format!("{} MiB", bytes >> 20)));
        self.put("device", device.disk.clone());
        self.put("device model", device.disk_fact("device/model"));
        self.put("device numa node", device.disk_fact("device/numa_node"));
        for name in QUEUE_FACTS {
            self.put(&format!("queue {name}"), device.queue_fact(name));
        }
        self.file(
            "nvme apst latency",
            "/sys/module/nvme_core/parameters/default_ps_max_latency_us",
        );
        self.put("irq affinity", irq_affinity(device));
        if !device.is_disk() {
            let fs = mount.map_or("an unknown file system".to_string(), |mount| mount.fs);
            self.warnings.push(format!("{fs}: these figures are no verdict on a disk"));
        }
    }
}

/// The word in brackets of a kernel file that lists choices; all of it when none is marked.
fn chosen(choices: &str) -> &str {
    let marked = choices.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    marked.map_or(choices, |(word, _)| word)
}

const QUEUE_FACTS: [&str; 10] = [
    "scheduler",
    "write_cache",
    "fua",
    "rotational",
    "nr_requests",
    "max_sectors_kb",
    "max_segments",
    "wbt_lat_usec",
    "read_ahead_kb",
    "physical_block_size",
];

/// The value behind `key:` in text of such lines.
fn field_of(text: &str, key: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(value.trim().to_string()).filter(|value| !value.is_empty())
}

/// The kernel's own options: what follows `--`, and which program is init, is not the kernel's.
fn boot_options(line: Option<String>) -> Option<String> {
    let line = line?;
    let own = line.split(" -- ").next().unwrap_or_default();
    let is_init = |option: &&str| option.starts_with("init=") || option.starts_with("rdinit=");
    Some(own.split_whitespace().filter(|o| !is_init(o)).collect::<Vec<_>>().join(" "))
}

/// A directory below the current one by its path from here: results travel without the rest.
fn short_path(dir: &Path) -> String {
    let here = std::env::current_dir().ok();
    let below = here.as_deref().and_then(|here| dir.strip_prefix(here).ok());
    below.unwrap_or(dir).display().to_string()
}

/// `model name` where the architecture has one.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_string())
    })
}

fn hypervisor(cpuinfo: &str) -> Option<String> {
    let said = read_trimmed(Path::new("/sys/hypervisor/type"))
        .or_else(|| read_trimmed(Path::new("/sys/class/dmi/id/sys_vendor")));
    let flagged = cpuinfo.lines().any(|line| {
        line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor")
    });
    match (flagged, said) {
        (true, Some(name)) => Some(format!("yes ({name})")),
        (true, None) => Some("yes (unnamed)".to_string()),
        (false, Some(name)) => Some(format!("no sign of one (vendor {name})")),
        (false, None) => None,
    }
}

/// Vulnerabilities that cost time here: name and what is done about each.
fn mitigations(dir: &Path) -> Option<String> {
    let mut active: Vec<String> = fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let state = read_trimmed(&entry.path())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            (state != "Not affected").then(|| format!("{name}: {state}"))
        })
        .collect();
    active.sort();
    Some(if active.is_empty() { "none needed".into() } else { active.join("; ") })
}

fn idle_states(dir: &Path) -> Option<String> {
    let mut names: Vec<(String, String)> = fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let name = read_trimmed(&entry.path().join("name"))?;
            Some((entry.file_name().to_string_lossy().into_owned(), name))
        })
        .collect();
    names.sort();
    let names: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// Journal mode and commit interval as the mount tells them; ext4 leaves defaults out.
fn journal(fs: &str, super_options: &str) -> String {
    let told: Vec<&str> = super_options
        .split(',')
        .filter(|one| {
            one.starts_with("data=") || one.starts_with("commit=") || one.contains("barrier")
        })
        .collect();
    match (told.is_empty(), fs) {
        (false, _) => told.join(","),
        (true, "ext4") => "ext4 defaults (data=ordered, commit=5)".to_string(),
        (true, _) => "file system defaults".to_string(),
    }
}

/// The v2 group of this process below `/sys/fs/cgroup`.
fn cgroup_dir(text: &str) -> Option<String> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    (!path.contains("..")).then(|| format!("/sys/fs/cgroup{}", path.trim_end_matches('/')))
}

/// Interrupt lines of the disk's driver and the CPUs that take them.
fn irq_affinity(device: &Device) -> Option<String> {
    let disk = device.disk.as_deref()?;
    let real = Path::new("/sys/block").join(disk).join("device").canonicalize().ok()?;
    let driver_device = real.file_name()?.to_string_lossy().into_owned();
    let interrupts = fs::read_to_string("/proc/interrupts").ok()?;
    let lines = irq_numbers(&interrupts, &driver_device);
    let told: Vec<String> = lines
        .iter()
        .filter_map(|irq| {
            let path = format!("/proc/irq/{irq}/smp_affinity_list");
            Some(format!("{irq} on {}", read_trimmed(Path::new(&path))?))
        })
        .collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// Numbers of the lines of `/proc/interrupts` that name `device`.
fn irq_numbers(interrupts: &str, device: &str) -> Vec<u32> {
    let names_device = |line: &str| {
        line.split_whitespace().last().is_some_and(|name| {
            name.strip_prefix(device)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    interrupts
        .lines()
        .filter(|line| names_device(line))
        .filter_map(|line| line.trim_start().split_once(':')?.0.parse().ok())
        .collect()
}

/// CRC-32C and length of the running binary: tells two builds apart, proves nothing else.
fn binary_hash() -> Option<String> {
    let bytes = fs::read("/proc/self/exe").ok()?;
    let crc = ringlog::format::checksum::crc32c(&bytes);
    Some(format!("crc32c {crc:08x}, {} bytes", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_options_are_the_kernels_own() {
        let line = "quiet rdinit=/x mitigations=auto -- --secret 1".to_string();
        assert_eq!(boot_options(Some(line)), Some("quiet mitigations=auto".to_string()));
        assert_eq!(boot_options(None), None);
    }

    #[test]
    fn fields_on_odd_contents() {
        let text = "Name:\tx\nCpus_allowed_list:\t0-3,7\nEmpty:\nNoColon\n: stray\n";
        assert_eq!(field_of(text, "Cpus_allowed_list"), Some("0-3,7".into()));
        assert_eq!(field_of(text, "Empty"), None);
        assert_eq!(field_of(text, "NoColon"), None);
        assert_eq!(field_of("", "Name"), None);
    }

    #[test]
    fn the_chosen_of_several_is_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
        assert_eq!(chosen("odd [open"), "odd [open");
    }

    #[test]
    fn cpu_model_where_the_architecture_has_none() {
        assert_eq!(cpu_model("processor : 0\nmodel name\t: A: B\n"), Some("A: B".into()));
        assert_eq!(cpu_model("processor : 0\nBogoMIPS : 50\n"), None);
        assert_eq!(cpu_model("garbage"), None);
    }

    #[test]
    fn journal_defaults_are_named_as_such() {
        assert_eq!(journal("ext4", "rw,data=writeback,commit=30"), "data=writeback,commit=30");
        assert!(journal("ext4", "rw,discard").contains("defaults"));
        assert_eq!(journal("xfs", ""), "file system defaults");
    }

    #[test]
    fn cgroup_v1_only_and_escapes_give_nothing() {
        assert_eq!(cgroup_dir("0::/a/b\n"), Some("/sys/fs/cgroup/a/b".into()));
        assert_eq!(cgroup_dir("0::/\n"), Some("/sys/fs/cgroup".into()));
        assert_eq!(cgroup_dir("1:cpu:/x\n"), None);
        assert_eq!(cgroup_dir("0::/../..\n"), None);
    }

    #[test]
    fn interrupts_of_one_device_only() {
        let text = "           CPU0  CPU1\n 24:  5  6  PCI-MSI 1-edge  virtio1-config\n \
                    25:  5  6  PCI-MSI 2-edge  virtio1-req.0\n \
                    26:  5  6  PCI-MSI 3-edge  virtio10-req.0\nNMI: 0 0 Non-maskable\n";
        assert_eq!(irq_numbers(text, "virtio1"), vec![24, 25]);
        assert!(irq_numbers("", "virtio1").is_empty());
    }

    #[test]
    fn one_core_is_shared_and_two_are_apart() {
        assert!(Cores::choose(&[3]).shared());
        let two = Cores::choose(&[2, 5, 6]);
        assert_eq!((two.server, two.client, two.shared()), (Some(2), Some(5), false));
        assert_eq!(Cores::choose(&[]), Cores { server: None, client: None });
    }
}
