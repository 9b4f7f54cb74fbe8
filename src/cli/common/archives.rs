//! Profiles in tar archives, as captures that keep only a profile write them.

use anyhow::{Context as _, bail};
use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};
use tempfile::TempDir;

/// Paths of profiles, and the folder of those that came from archives, which is removed at the end.
pub(in crate::cli) struct UnpackedProfiles {
    paths: Vec<PathBuf>,
    _folder: Option<TempDir>,
}

impl UnpackedProfiles {
    pub(in crate::cli) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

/// Unpacks each `NAME.ibp.tar`; other paths stay as they are.
pub(in crate::cli) fn unpack(profiles: &[PathBuf]) -> anyhow::Result<UnpackedProfiles> {
    let is_archive = |path: &Path| path.extension().is_some_and(|extension| extension == "tar");
    if !profiles.iter().any(|path| is_archive(path)) {
        return Ok(UnpackedProfiles { paths: profiles.to_vec(), _folder: None });
    }
    let folder = tempfile::Builder::new().prefix("ibscope-profiles-").tempdir()?;
    let mut paths = Vec::new();
    for (number, path) in profiles.iter().enumerate() {
        if is_archive(path) {
            let place = folder.path().join(format!("{number}.ibp"));
            fs::create_dir(&place)?;
            unpack_one(path, &place)
                .with_context(|| format!("{}: it is not an archive of a profile", path.display()))?;
            paths.push(place);
        } else {
            paths.push(path.clone());
        }
    }
    Ok(UnpackedProfiles { paths, _folder: Some(folder) })
}

/// Writes the files of the only folder in an archive. Links and further folders are refused.
fn unpack_one(archive: &Path, place: &Path) -> anyhow::Result<()> {
    let mut archive = tar::Archive::new(File::open(archive)?);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let parts: Vec<Component> = path.components().collect();
        match (entry.header().entry_type(), &parts[..]) {
            (tar::EntryType::Directory, [Component::Normal(_)]) => {}
            (tar::EntryType::Regular, [Component::Normal(_), Component::Normal(name)]) => {
                std::io::copy(&mut entry, &mut File::create_new(place.join(name))?)?;
            }
            _ => bail!("unexpected entry {}", path.display()),
        }
    }
    if !place.join("profile.json").exists() {
        bail!("profile.json is missing");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(folder: &Path, entries: &[(&str, tar::EntryType)]) -> PathBuf {
        let path = folder.join("x.ibp.tar");
        let mut builder = tar::Builder::new(File::create(&path).unwrap());
        for (name, kind) in entries {
            let mut header = tar::Header::new_gnu();
            // Not by `set_path`, which refuses some of these names.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(0);
            header.set_cksum();
            builder.append(&header, std::io::empty()).unwrap();
        }
        builder.finish().unwrap();
        path
    }

    #[test]
    fn only_the_files_of_one_folder_are_unpacked() {
        use tar::EntryType::{Directory, Regular, Symlink};
        let folder = tempfile::tempdir().unwrap();
        let good = archive(folder.path(), &[("x.ibp", Directory), ("x.ibp/profile.json", Regular)]);
        let unpacked = unpack(&[good.clone(), PathBuf::from("other.ibp")]).unwrap();
        assert!(unpacked.paths()[0].join("profile.json").exists());
        assert_eq!(unpacked.paths()[1], Path::new("other.ibp"));
        let place = unpacked.paths()[0].clone();
        drop(unpacked);
        assert!(!place.exists());
        for bad in [
            &[("../profile.json", Regular)][..],
            &[("/x/profile.json", Regular)],
            &[("x.ibp/a/profile.json", Regular)],
            &[("x.ibp/profile.json", Symlink)],
            &[("x.ibp/other", Regular)],
            &[],
        ] {
            let path = archive(folder.path(), bad);
            assert!(unpack(&[path]).is_err(), "{bad:?}");
        }
    }
}
