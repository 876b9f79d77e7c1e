//! Reading in a tree: one file, or what there is.

use std::io::{self, Read};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use cap_std::fs::{Dir, Metadata};

use super::LARGEST;
use crate::store::{Millis, StoreError};
use crate::workspace::contract::{About, Entry, Etag, FileError, Listed, Listing, Page};
use crate::workspace::path::FilePath;
use crate::workspace::text::is_binary;

/// A file, whole. `None` where there is none.
pub(super) fn read(files: &Dir, path: &FilePath) -> Result<Option<(About, Bytes)>, FileError> {
    // Looked at before it is opened: opening a pipe would wait for somebody to write into it.
    let Some(about) = looked_at(files, path)? else { return Ok(None) };
    let opened = files.open(path.as_str()).and_then(|mut file| {
        let about = file.metadata()?;
        if !about.is_file() || about.len() > LARGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(about.len()).unwrap_or(0));
        file.by_ref().take(LARGEST).read_to_end(&mut bytes)?;
        Ok((modified(&about), bytes))
    });
    match opened {
        Ok((modified, bytes)) => {
            let about = About {
                size: bytes.len() as u64,
                etag: Etag::of(&bytes),
                modified,
                binary: is_binary(&bytes),
            };
            Ok(Some((about, bytes.into())))
        }
        Err(error) if is_absent(&error) => Ok(None),
        Err(_) if about.len() > LARGEST => Err(FileError::TooLarge { size: about.len(), limit: LARGEST }),
        Err(error) => Err(refused(path, &error)),
    }
}

/// What is at a path, if it is a file.
pub(super) fn looked_at(files: &Dir, path: &FilePath) -> Result<Option<Metadata>, FileError> {
    match files.metadata(path.as_str()) {
        Ok(about) if about.is_dir() => Err(FileError::IsFolder(path.clone())),
        Ok(about) if about.is_file() => Ok(Some(about)),
        Ok(_) => Err(StoreError::Disk(format!("{path} is neither a file nor a folder")).into()),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(refused(path, &error)),
    }
}

pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

pub(super) fn refused(path: &FilePath, error: &io::Error) -> FileError {
    // The handle's own refusal has no number of the system's.
    if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        FileError::Outside(path.clone())
    } else {
        StoreError::Disk(format!("{path}: {error}")).into()
    }
}

pub(super) fn modified(about: &Metadata) -> Millis {
    let at = about.modified().ok().and_then(|at| at.into_std().duration_since(UNIX_EPOCH).ok());
    at.and_then(|since| Millis::try_from(since.as_millis()).ok()).unwrap_or(0)
}

/// Bytes and number of all files.
pub(super) fn count(files: &Dir) -> io::Result<(u64, u64)> {
    let (mut bytes, mut number) = (0, 0);
    each(files, "", &mut |path, is_folder| {
        if !is_folder && let Ok(about) = files.symlink_metadata(path) {
            bytes += about.len();
            number += 1;
        }
        true
    })?;
    Ok((bytes, number))
}

pub(super) fn list(files: &Dir, listing: &Listing) -> io::Result<Page> {
    let (start, prefix) = match &listing.below {
        None => (files.try_clone()?, String::new()),
        Some(folder) => match files.open_dir(folder.as_str()) {
            Ok(start) => (start, format!("{folder}/")),
            Err(error) if is_absent(&error) => return Ok(Page::default()),
            Err(error) => return Err(error),
        },
    };
    let after = listing.after.as_deref().unwrap_or("");
    let mut found: Vec<(String, bool)> = Vec::new();
    each(&start, &prefix, &mut |path, is_folder| {
        // All that is in a folder comes after its name and a slash.
        let inside = format!("{path}/");
        if is_folder && !listing.folders {
            return inside.as_str() > after || after.starts_with(&inside);
        }
        let name = if is_folder { inside.as_str() } else { path };
        if name > after {
            found.push((name.to_owned(), is_folder));
        }
        false
    })?;
    found.sort_unstable();
    let more = found.len() > listing.limit;
    found.truncate(listing.limit);
    let next = found.last().filter(|_| more).map(|(path, _)| path.clone());
    let entries =
        found.into_iter().filter_map(|(path, is_folder)| entry(files, path, is_folder, listing.etags));
    Ok(Page { entries: entries.collect(), next })
}

/// `None` where it vanished while we looked.
fn entry(files: &Dir, path: String, is_folder: bool, etags: bool) -> Option<Entry> {
    if is_folder {
        return Some(Entry { path, what: Listed::Folder });
    }
    let about = files.symlink_metadata(&path).ok()?;
    let etag = if etags {
        let path = FilePath::new(&path).ok()?;
        read(files, &path).ok().flatten().map(|(about, _)| about.etag)
    } else {
        None
    };
    Some(Entry { path, what: Listed::File { size: about.len(), modified: modified(&about), etag } })
}

/// Every file and folder, in no order; `visit` says whether a folder is gone into. Links are passed over, and names
/// that no path can spell.
fn each(folder: &Dir, prefix: &str, visit: &mut dyn FnMut(&str, bool) -> bool) -> io::Result<()> {
    for entry in folder.entries()? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{prefix}{name}");
        let Ok(kind) = entry.file_type() else { continue };
        if FilePath::new(&path).is_err() {
            continue;
        }
        if kind.is_file() {
            visit(&path, false);
        } else if kind.is_dir() && visit(&path, true) {
            match entry.open_dir() {
                Ok(inner) => each(&inner, &format!("{path}/"), visit)?,
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
