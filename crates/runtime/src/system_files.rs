//! The files in which the kernel describes the machine (/proc and /sys), below a directory that tests choose.
//!
//! What cannot be read is `None`: containers hide much of it, and each reader knows what its absence means.

use std::fs;
use std::path::{Path, PathBuf};

/// Reads what the kernel says about this machine.
#[derive(Clone, Debug)]
pub struct SystemFiles {
    root: PathBuf,
}

impl SystemFiles {
    /// Those of the machine.
    #[must_use]
    pub fn real() -> Self {
        Self::below("/")
    }

    /// Those of a directory that stands for `/`.
    #[must_use]
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The text of a file without blanks around it. A leading `/` of `path` is that of the chosen directory.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.path(path)).ok()?.trim().to_owned())
    }

    /// A file that holds one number.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// The names in a directory, sorted; none where there is no such directory.
    #[must_use]
    pub fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    /// Where a symbolic link leads.
    #[must_use]
    pub fn link(&self, path: &str) -> Option<PathBuf> {
        fs::read_link(self.path(path)).ok()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(Path::new(path.trim_start_matches('/')))
    }
}

#[cfg(test)]
pub(crate) mod fake {
    //! Trees of files that stand for a machine.

    use super::*;

    /// A directory of its own, removed when dropped.
    pub(crate) struct Tree {
        pub(crate) files: SystemFiles,
    }

    impl Tree {
        pub(crate) fn new(label: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("corelane-{}-{label}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{text}\n")).unwrap();
            }
            Self { files: SystemFiles::below(root) }
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.files.root);
        }
    }

    #[test]
    fn files_are_read_below_the_root_and_missing_ones_are_none() {
        let tree = Tree::new("files", &[("sys/a", "12"), ("sys/b", " x y ")]);
        assert_eq!(tree.files.number("/sys/a"), Some(12));
        assert_eq!(tree.files.text("sys/b").as_deref(), Some("x y"));
        assert_eq!(tree.files.number("sys/b"), None);
        assert_eq!(tree.files.text("sys/c"), None);
        assert_eq!(tree.files.names("sys"), ["a", "b"]);
        assert!(tree.files.names("proc").is_empty());
        assert!(SystemFiles::real().text("/proc/sys/kernel/osrelease").is_some());
    }
}
