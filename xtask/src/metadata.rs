//! The part of `cargo metadata` that the checks read.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    /// Absent when metadata was asked for without dependencies.
    pub(crate) resolve: Option<Resolve>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) features: std::collections::BTreeMap<String, Vec<String>>,
}

/// An edge as `Cargo.toml` states it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Option<Kind>,
    #[serde(default)]
    pub(crate) optional: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Normal,
    Dev,
    Build,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) deps: Vec<NodeDep>,
}

/// An edge as cargo resolved it, with every reason it exists for.
#[derive(Debug, Deserialize)]
pub(crate) struct NodeDep {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<DepKind>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DepKind {
    pub(crate) kind: Option<Kind>,
}

impl DepKind {
    /// Whether the dependency becomes part of what is built. Cargo writes a normal edge as `null`.
    pub(crate) fn is_normal(&self) -> bool {
        matches!(self.kind, None | Some(Kind::Normal))
    }
}

impl Package {
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// The file that the crate begins in.
    pub(crate) fn root_file(&self) -> Result<PathBuf> {
        let candidates = ["src/lib.rs", "src/main.rs"].map(|file| self.folder().join(file));
        let found = candidates.into_iter().find(|path| path.is_file());
        found.with_context(|| format!("{} has neither src/lib.rs nor src/main.rs", self.name))
    }
}

/// Runs `cargo metadata` for the workspace in `root` with additional arguments.
pub(crate) fn read(root: &Path, arguments: &[&str]) -> Result<Metadata> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("reading the output of cargo metadata")
}
