//! Trees that nobody has used for their time go, and what a process that was killed left unfinished.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, Weak};
use std::time::{Duration, SystemTime};

use rand::Rng;

use super::{Inner, stride};

/// No write takes this long.
const ABANDONED: Duration = Duration::from_secs(3600);
const TRASH: &str = "trash.";
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Rounds, as often as the trees' time makes sense of, until the trees are dropped.
pub(super) async fn forever(trees: Weak<Inner>) {
    loop {
        let Some(pause) = trees.upgrade().map(|inner| (inner.limits.ttl / 8).min(LONGEST_PAUSE)) else {
            return;
        };
        tokio::time::sleep(pause.max(Duration::from_millis(10))).await;
        let Some(inner) = trees.upgrade() else { return };
        let swept = tokio::task::spawn_blocking(move || inner.sweep()).await;
        if let Ok(Err(error)) = swept {
            tracing::warn!(%error, "the sweep through the workspaces was cut short");
        }
    }
}

/// Makes the file's time now.
pub(super) fn mark_used(used: &Path) -> io::Result<()> {
    File::create(used)?.set_modified(SystemTime::now())
}

impl Inner {
    pub(super) fn sweep(&self) -> io::Result<()> {
        let mut places = vec![self.own.join("agent"), self.folder.join("global")];
        for kind in ["users", "sessions"] {
            for entry in fs::read_dir(self.own.join(kind))? {
                places.push(entry?.path());
            }
        }
        for entry in fs::read_dir(&self.own)? {
            // Of a sweep that was cut short.
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(TRASH)) {
                let _ = fs::remove_dir_all(path);
            }
        }
        for place in places {
            if let Err(error) = self.sweep_tree(&place)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(place = %place.display(), %error, "a workspace was left alone");
            }
        }
        Ok(())
    }

    fn sweep_tree(&self, place: &Path) -> io::Result<()> {
        let unused = || -> io::Result<Duration> {
            let used = fs::metadata(place.join("meta/used"))?.modified()?;
            Ok(SystemTime::now().duration_since(used).unwrap_or_default())
        };
        let ttl = self.limits.ttl + stride(self.limits.ttl);
        if unused()? <= ttl {
            return remove_abandoned(&place.join("meta/temporary"));
        }
        // Locked without being marked as used; whoever has it is using it.
        let lock = File::options().read(true).write(true).open(place.join("meta/lock"))?;
        if lock.try_lock().is_err() || unused()? <= ttl {
            return Ok(());
        }
        let trash = self.own.join(format!("{TRASH}{:016x}", rand::rng().random::<u64>()));
        fs::rename(place, &trash)?;
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
        tracing::debug!(place = %place.display(), "a workspace whose time was up is gone");
        fs::remove_dir_all(trash)
    }
}

/// Not those of tool calls: their records go by them.
fn remove_abandoned(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        let old = |path: &Path| -> io::Result<bool> {
            let age = SystemTime::now().duration_since(fs::metadata(path)?.modified()?);
            Ok(age.unwrap_or_default() > ABANDONED)
        };
        if path.extension().is_some_and(|extension| extension == "tmp") && old(&path)? {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
