//! Finds one library: explicit variables first, then pkg-config, then known installations.
//!
//! Pure: the environment and pkg-config are closures, the filesystem is only read, below `root`. So tests run it over
//! fake installations.

use std::fmt;
use std::path::{Path, PathBuf};

use super::headers::{self, Version};
use super::layout::{self, Layout};
use super::library::Library;

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
    let mut attempt = Attempt { library, search, fixed: false, tried: Vec::new(), warnings: Vec::new() };
    attempt.fixed = attempt.wants_archive()?;
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
    fixed: bool,
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

    fn wants_archive(&mut self) -> Result<bool, Failure> {
        let Some((name, value)) = self.variable(&format!("{}_STATIC", self.library.key)) else { return Ok(false) };
        match value.as_str() {
            "1" => Ok(true),
            "0" => Ok(false),
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
        if let Some(found) = self.pkg_config() {
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
        let set: Vec<(String, String)> = self.library.homes.iter().filter_map(|name| self.variable(name)).collect();
        // A variable for this target counts before those for every target.
        let bare = |(name, _): &&(String, String)| self.library.homes.contains(&name.as_str());
        let Some((name, value)) = set.iter().find(|entry| !bare(entry)).or(set.first()).cloned() else {
            self.tried.push((self.library.homes.join(", "), "unset".into()));
            return Ok(None);
        };
        for (other, differs) in set.iter().filter(|(_, other)| !same_place(other, &value)) {
            self.warnings.push(format!("{name}={value} is used; {other}={differs} differs and is ignored"));
        }
        let layout = Layout::prefix(Path::new(&value), self.search.target);
        self.explicit(format!("{name}={value}"), &name, &layout)
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
        match root(self.search, "NVHPC_ROOT") {
            None => self.tried.push(("NVHPC_ROOT".into(), "unset".into())),
            Some(value) => {
                for below in self.library.hpc_sdk {
                    let prefix = Path::new(&value).join(below);
                    if let Some(found) = self.implicit(format!("NVHPC_ROOT={value}"), "NVHPC_ROOT", &prefix) {
                        return Some(found);
                    }
                }
            }
        }
        match root(self.search, "CONDA_PREFIX") {
            None => self.tried.push(("CONDA_PREFIX".into(), "unset".into())),
            Some(value) => {
                let place = format!("CONDA_PREFIX={value}");
                if let Some(found) = self.implicit(place, "CONDA_PREFIX", Path::new(&value)) {
                    return Some(found);
                }
            }
        }
        match root(self.search, "VIRTUAL_ENV") {
            None => self.tried.push(("VIRTUAL_ENV".into(), "unset".into())),
            Some(value) => {
                let place = format!("VIRTUAL_ENV={value}");
                let sites = layout::wheels(Path::new(&value));
                if sites.is_empty() {
                    self.tried.push((place.clone(), "no wheel of NVIDIA in site-packages".into()));
                }
                for prefix in sites.iter().flat_map(|site| self.library.wheels.iter().map(|below| site.join(below))) {
                    if let Some(found) = self.implicit(place.clone(), "VIRTUAL_ENV", &prefix) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    fn distributions(&mut self) -> Option<Found> {
        for below in self.library.prefixes {
            let prefix = self.search.root.join(below);
            let place = prefix.join("include").join(self.library.header).display().to_string();
            if let Some(found) = self.implicit(place.clone(), &prefix.display().to_string(), &prefix) {
                return Some(found);
            }
        }
        None
    }

    fn implicit(&mut self, place: String, origin: &str, prefix: &Path) -> Option<Found> {
        match self.inspect(origin, &Layout::prefix(prefix, self.search.target)) {
            Ok(found) => Some(found),
            Err(reason) => {
                // The place may be the header itself.
                let missing = reason.strip_suffix(" missing").is_some_and(|header| place.ends_with(header));
                self.tried.push((place, if missing { "missing".into() } else { reason }));
                None
            }
        }
    }

    /// Whether the directories hold a header and a library that belong together and are new enough.
    fn inspect(&self, origin: &str, layout: &Layout) -> Result<Found, String> {
        let library = self.library;
        let header = library.header;
        let include = layout.includes.iter().find(|include| include.join(header).is_file());
        let Some(include) = include.cloned() else {
            return Err(match layout.includes.first() {
                Some(first) => format!("{} missing", shown(first, header)),
                None => format!("{header} missing"),
            });
        };
        let text = std::fs::read(include.join(header)).map_err(|error| format!("{header}: {error}"))?;
        let Some(version) = (library.version)(&String::from_utf8_lossy(&text)) else {
            return Err(format!("{header} does not say its version"));
        };
        if version < library.minimum {
            return Err(format!("{version} (too old)"));
        }
        let soname = (library.soname)(version);
        let names = match self.fixed {
            true => vec![format!("lib{}_static.a", library.stem)],
            false => vec![soname.clone(), format!("lib{}.so", library.stem)],
        };
        let file = layout.libs.iter().flat_map(|lib| names.iter().map(move |name| lib.join(name)));
        let Some(file) = file.into_iter().find(|file| file.is_file()) else {
            let wanted = if self.fixed { names[0].clone() } else { format!("lib{}.so", library.stem) };
            let tail = if self.fixed { String::new() } else { format!("[.{}]", version.0) };
            return Err(format!("headers of {version}, but no {wanted}{tail} beside them"));
        };
        if !self.fixed {
            self.agrees(&file, version)?;
        }
        let lib = file.parent().map(Path::to_path_buf).unwrap_or_default();
        let companions = layout.companions.iter().filter(|at| **at != include && at.is_dir()).cloned().collect();
        let fixed = self.fixed;
        Ok(Found {
            include,
            companions,
            lib,
            file,
            soname,
            fixed,
            version,
            origin: origin.into(),
            warnings: Vec::new(),
        })
    }

    /// An older library under newer headers is undefined symbols later: the file name usually tells.
    fn agrees(&self, file: &Path, version: Version) -> Result<(), String> {
        let Ok(real) = file.canonicalize() else { return Ok(()) };
        let name = real.file_name().unwrap_or_default().to_string_lossy();
        let parts = headers::of_file_name(&name);
        let older = match parts.as_slice() {
            [major, ..] if *major != version.0 => true,
            [_, minor, ..] => *minor < version.1,
            _ => false,
        };
        if older { Err(format!("headers of {version}, but the library is {name}")) } else { Ok(()) }
    }

    fn failure(&self, what: &str, explicit: Option<&str>) -> Failure {
        let Library { name, header, minimum, stem, key, .. } = self.library;
        let wanted = match self.fixed {
            true => format!("lib{stem}_static.a, because {key}_STATIC=1"),
            false => {
                let soname = (self.library.soname)(*minimum);
                match soname.strip_prefix(&format!("lib{stem}.so.")) {
                    Some(major) if *key == "NCCL" => format!("lib{stem}.so[.{major}]"),
                    _ => format!("lib{stem}.so[.N]"),
                }
            }
        };
        let home = self.library.homes[if *key == "CUDA" { 1 } else { 0 }];
        let second = match explicit {
            Some(set) => format!("correct or unset {set}"),
            None => format!("export {home}=/path"),
        };
        Failure {
            summary: format!("{name} {what} (need {header} >= {minimum} and {wanted})"),
            tried: self.tried.clone(),
            fixes: [self.library.install.into(), second, "--features emulator for the CPU emulator".into()],
        }
    }
}

/// `include/nccl.h`: the header with the last part of its directory.
fn shown(include: &Path, header: &str) -> String {
    match include.file_name() {
        Some(last) => format!("{}/{header}", last.to_string_lossy()),
        None => format!("{}/{header}", include.display()),
    }
}

fn same_place(a: &str, b: &str) -> bool {
    let real = |path: &str| Path::new(path).canonicalize().unwrap_or_else(|_| path.into());
    a == b || real(a) == real(b)
}
