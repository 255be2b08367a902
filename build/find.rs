//! Finds one library: explicit variables first, then pkg-config, then known installations.
//!
//! Pure: the environment and pkg-config are closures, the filesystem is only read, below `root`. So tests run it over
//! fake installations.

use std::fmt;
use std::path::{Path, PathBuf};

use super::emulator;
use super::headers::Version;
use super::layout::{self, Layout};
use super::library::Library;
use super::place;

/// What pkg-config knows of a package.
#[derive(Debug, Clone, Default)]
pub struct Package {
    /// Directories of headers.
    pub includes: Vec<PathBuf>,
    /// Directories of libraries.
    pub libs: Vec<PathBuf>,
}

/// The machine to search.
pub struct Search<'a> {
    /// The environment; empty values count as unset.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// pkg-config: a package, or why there is none.
    pub package: &'a dyn Fn(&str) -> Result<Package, String>,
    /// `/`, except in tests.
    pub root: &'a Path,
    /// The triple to build for.
    pub target: &'a str,
    /// The triple of this machine.
    pub host: &'a str,
}

/// A library that will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The directory of the header.
    pub include: PathBuf,
    /// More directories that the header needs.
    pub companions: Vec<PathBuf>,
    /// The directory of the library.
    pub lib: PathBuf,
    /// The library itself: an archive where `fixed` is set.
    pub file: PathBuf,
    /// The name that programs look for when they start.
    pub soname: String,
    /// Whether the archive is to be linked.
    pub fixed: bool,
    /// The version of the header.
    pub version: Version,
    /// The `X` of `X_HOME`.
    pub key: &'static str,
    /// `nccl` of `libnccl.so`.
    pub stem: &'static str,
    /// What led here, such as `NCCL_HOME`.
    pub origin: String,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// Why there is none: every place tried, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The first line.
    pub summary: String,
    /// Places and reasons.
    pub tried: Vec<(String, String)>,
    /// Three ways out.
    pub fixes: [String; 3],
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.summary)?;
        let width = self.tried.iter().map(|(place, _)| place.chars().count()).max().unwrap_or_default().max(35);
        for (place, reason) in &self.tried {
            writeln!(f, "  {place:<width$}  {reason}")?;
        }
        writeln!(f, "  fix: {}", self.fixes.join(" | "))
    }
}

/// Finds `library`.
pub fn find(library: &Library, search: &Search<'_>) -> Result<Found, Failure> {
    let mut attempt = Attempt { library, search, archive: None, tried: Vec::new(), warnings: Vec::new() };
    attempt.archive = attempt.wants_archive()?;
    match attempt.run()? {
        Some(mut found) => {
            found.warnings = attempt.warnings;
            Ok(found)
        }
        None => Err(attempt.failure("not found", None)),
    }
}

struct Attempt<'a> {
    library: &'a Library,
    search: &'a Search<'a>,
    /// The variable that asks for the archive.
    archive: Option<String>,
    tried: Vec<(String, String)>,
    warnings: Vec<String>,
}

impl Attempt<'_> {
    /// `name` for the target, else `name`: which one was set, and its value.
    fn variable(&self, name: &str) -> Option<(String, String)> {
        let prefixed = format!("{}_{name}", self.search.target.to_uppercase().replace(['-', '.'], "_"));
        [prefixed, name.to_string()].into_iter().find_map(|name| {
            let value = (self.search.env)(&name).filter(|value| !value.is_empty())?;
            Some((name, value))
        })
    }

    /// `CUDART_STATIC` and `NCCL_STATIC`; `CUDA_STATIC` does as well.
    fn wants_archive(&mut self) -> Result<Option<String>, Failure> {
        let names = [self.library.stem.to_uppercase(), self.library.key.to_string()];
        let Some((name, value)) = names.iter().find_map(|name| self.variable(&format!("{name}_STATIC"))) else {
            return Ok(None);
        };
        match value.as_str() {
            "1" if !self.library.archive => {
                let file = format!("lib{}.so", self.library.stem);
                self.tried.push((format!("{name}={value}"), format!("there is no archive of it, {file} only")));
                Err(self.failure(&format!("cannot be linked statically: unset {name}"), Some(&name)))
            }
            "1" => Ok(Some(name)),
            "0" => Ok(None),
            _ => {
                self.tried.push((format!("{name}={value}"), "neither 0 nor 1".into()));
                Err(self.failure(&format!("not searched for: {name} is wrong"), Some(&name)))
            }
        }
    }

    fn run(&mut self) -> Result<Option<Found>, Failure> {
        if let Some(found) = self.pair()? {
            return Ok(Some(found));
        }
        if let Some(found) = self.home()? {
            return Ok(Some(found));
        }
        if let Some(found) = self.within().or_else(|| self.pkg_config()) {
            return Ok(Some(found));
        }
        if self.search.host != self.search.target {
            self.tried.push((
                "known installations".into(),
                format!("not searched: they are for {}, the target is {}", self.search.host, self.search.target),
            ));
            return Ok(None);
        }
        Ok(self.environments().or_else(|| self.distributions()))
    }

    /// `X_INCLUDE_DIR` and `X_LIB_DIR`.
    fn pair(&mut self) -> Result<Option<Found>, Failure> {
        let (include, lib) = (format!("{}_INCLUDE_DIR", self.library.key), format!("{}_LIB_DIR", self.library.key));
        match (self.variable(&include), self.variable(&lib)) {
            (None, None) => {
                self.tried.push((format!("{include} / {lib}"), "unset".into()));
                Ok(None)
            }
            (Some((include, at)), Some((lib, of))) => {
                for (name, value) in [(&include, &at), (&lib, &of)] {
                    self.directory(name, value)?;
                }
                let layout = Layout::pair(at.clone().into(), of.clone().into());
                let place = format!("{include}={at} / {lib}={of}");
                self.explicit(place, &format!("{include} and {lib}"), &layout)
            }
            (Some((set, at)), None) => Err(self.half(&set, &at, &lib)),
            (None, Some((set, at))) => Err(self.half(&set, &at, &include)),
        }
    }

    fn half(&mut self, set: &str, value: &str, unset: &str) -> Failure {
        self.tried.push((format!("{set}={value}"), format!("{unset} is unset: the two must be given together")));
        self.failure(&format!("not searched for: {set} is given without {unset}"), Some(set))
    }

    /// `X_HOME` and its other names.
    fn home(&mut self) -> Result<Option<Found>, Failure> {
        let set = self.set(self.library.homes);
        let Some((name, value)) = set.first().cloned() else {
            self.tried.push((self.library.homes.join(", "), "unset".into()));
            return Ok(None);
        };
        for (other, differs) in set.iter().filter(|(_, other)| !same_place(other, &value)) {
            self.warnings.push(format!("{name}={value} is used; {other}={differs} differs and is ignored"));
        }
        self.directory(&name, &value)?;
        let layout = Layout::of(self.library, Path::new(&value), self.search.target);
        self.explicit(format!("{name}={value}"), &name, &layout)
    }

    /// Those of `names` that are set: a variable for this target counts before those for every target.
    fn set(&self, names: &[&str]) -> Vec<(String, String)> {
        let mut set: Vec<(String, String)> = names.iter().filter_map(|name| self.variable(name)).collect();
        set.sort_by_key(|(name, _)| names.contains(&name.as_str()));
        set
    }

    /// Where the variables of something else say that this one may lie too. That one has to be there, this one need not.
    fn within(&mut self) -> Option<Found> {
        let names = self.library.within;
        let Some((name, value)) = self.set(names).first().cloned() else {
            if !names.is_empty() {
                self.tried.push((names.join(", "), "unset".into()));
            }
            return None;
        };
        self.implicit(format!("{name}={value}"), &name, Path::new(&value))
    }

    /// A variable that names a directory has to.
    fn directory(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let Some(reason) = place::no_directory(Path::new(value)) else { return Ok(()) };
        self.tried.push((format!("{name}={value}"), reason));
        Err(self.failure(&format!("not found through {name}"), Some(name)))
    }

    /// An explicit value is used or it is an error.
    fn explicit(&mut self, place: String, origin: &str, layout: &Layout) -> Result<Option<Found>, Failure> {
        match self.inspect(origin, layout) {
            Ok(found) => Ok(Some(found)),
            Err(reason) => {
                self.tried.push((place, reason));
                Err(self.failure(&format!("not found through {origin}"), Some(origin)))
            }
        }
    }

    fn pkg_config(&mut self) -> Option<Found> {
        let names = (self.library.packages)();
        let place = match names.as_slice() {
            [only] => format!("pkg-config {only}"),
            [first, second, .., last] => format!("pkg-config {first}, {second} … {last}"),
            _ => return None,
        };
        let mut reasons: Vec<String> = Vec::new();
        for name in &names {
            let reason = match (self.search.package)(name) {
                Ok(package) => {
                    let layout = Layout { includes: package.includes, libs: package.libs, companions: Vec::new() };
                    match self.inspect(&format!("pkg-config {name}"), &layout) {
                        Ok(found) => return Some(found),
                        Err(reason) => format!("{name}: {reason}"),
                    }
                }
                Err(reason) => reason,
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        self.tried.push((place, reasons.join("; ")));
        None
    }

    /// HPC SDK, conda, virtual environments.
    fn environments(&mut self) -> Option<Found> {
        let root = |search: &Search<'_>, name| (search.env)(name).filter(|value| !value.is_empty());
        for name in ["NVHPC_ROOT", "CONDA_PREFIX", "VIRTUAL_ENV"] {
            let Some(value) = root(self.search, name) else {
                self.tried.push((name.into(), "unset".into()));
                continue;
            };
            let (place, base) = (format!("{name}={value}"), Path::new(&value));
            if let Some(reason) = place::no_directory(base) {
                self.tried.push((place, reason));
                continue;
            }
            let below = |base: &Path, names: &[&str]| names.iter().map(|name| base.join(name)).collect::<Vec<_>>();
            let prefixes = match name {
                "NVHPC_ROOT" => below(base, self.library.hpc_sdk),
                "CONDA_PREFIX" => vec![base.to_path_buf()],
                _ => Vec::new(),
            };
            let wheels: Vec<PathBuf> = match name {
                "NVHPC_ROOT" => Vec::new(),
                // pip installs into environments of conda as well.
                _ => layout::wheels(base).iter().flat_map(|site| below(site, self.library.wheels)).collect(),
            };
            let none = wheels.is_empty() && name != "NVHPC_ROOT" && !self.library.wheels.is_empty();
            for prefix in prefixes.into_iter().chain(wheels) {
                if let Some(found) = self.implicit(place.clone(), name, &prefix) {
                    return Some(found);
                }
            }
            if none {
                self.tried.push((place, "no wheel of NVIDIA in site-packages".into()));
            }
        }
        None
    }

    fn distributions(&mut self) -> Option<Found> {
        let multiarch = layout::multiarch(self.search.target).unwrap_or("none");
        for below in self.library.prefixes {
            let prefix = self.search.root.join(below.replace("{multiarch}", multiarch));
            let layout = Layout::of(self.library, &prefix, self.search.target);
            let place = layout.includes[0].join(self.library.header).display().to_string();
            if let Some(found) = self.implicit(place.clone(), &prefix.display().to_string(), &prefix) {
                return Some(found);
            }
        }
        None
    }

    fn implicit(&mut self, place: String, origin: &str, prefix: &Path) -> Option<Found> {
        match self.inspect(origin, &Layout::of(self.library, prefix, self.search.target)) {
            Ok(found) => Some(found),
            Err(reason) => {
                // The place may be the header itself.
                let missing = reason.strip_suffix(" missing").is_some_and(|header| place.ends_with(header));
                self.tried.push((place, if missing { "missing".into() } else { reason }));
                None
            }
        }
    }

    fn inspect(&self, origin: &str, layout: &Layout) -> Result<Found, String> {
        place::inspect(self.library, layout, self.search.target, self.archive.is_some(), origin)
    }

    fn failure(&self, what: &str, explicit: Option<&str>) -> Failure {
        let Library { name, header, minimum, stem, key, .. } = self.library;
        let wanted = match &self.archive {
            Some(name) => format!("lib{stem}_static.a, because {name}=1"),
            None => {
                let soname = (self.library.soname)(*minimum);
                match soname.strip_prefix(&format!("lib{stem}.so.")) {
                    Some(major) if *key != "CUDA" => format!("lib{stem}.so[.{major}]"),
                    _ => format!("lib{stem}.so[.N]"),
                }
            }
        };
        let home = self.library.homes[if *key == "CUDA" { 1 } else { 0 }];
        let second = match explicit {
            Some(set) => format!("correct or unset {set}"),
            None => format!("export {home}=/path"),
        };
        let refused = (self.search.env)(emulator::REFUSED).is_some_and(|value| value == "1");
        let emulator = format!("{} for the CPU emulator", emulator::how(refused));
        let third = match *key {
            "NVSHMEM" => format!("{emulator} | leave out the feature nvshmem"),
            // The emulator has none.
            "PMIX" => "leave out the feature pmix".to_owned(),
            _ => emulator,
        };
        // Packages of several versions of CUDA are named by the newest one.
        let install = match self.library.for_cuda {
            Some(major) => self.library.install.replace("-cuda-13", &format!("-cuda-{major}")),
            None => self.library.install.to_owned(),
        };
        Failure {
            summary: format!("{name} {what} (need {header} >= {minimum} and {wanted})"),
            tried: self.tried.clone(),
            fixes: [install, second, third],
        }
    }
}

fn same_place(a: &str, b: &str) -> bool {
    let real = |path: &str| Path::new(path).canonicalize().unwrap_or_else(|_| path.into());
    a == b || real(a) == real(b)
}
