//! Which of several images that lie together.

use super::ImageError;

/// Something that is called something.
pub(super) trait Named {
    /// Its names, the one to tell people first; never none.
    fn names(&self) -> Vec<String>;

    /// Whether it may be a part of the same image as those beside it.
    fn may_be_one(&self) -> bool;
}

/// Those called `name`; without a name all of them, if they are one image.
pub(super) fn choose<T: Named>(all: Vec<T>, name: Option<&str>) -> Result<Vec<T>, ImageError> {
    let known = || {
        let mut known: Vec<String> = all
            .iter()
            .filter_map(|it| it.names().into_iter().next())
            .collect();
        known.sort();
        known.dedup();
        known
    };
    let Some(name) = name else {
        return if all.len() <= 1 || all.iter().all(Named::may_be_one) || known().len() == 1 {
            Ok(all)
        } else {
            Err(ImageError::Several { known: known() })
        };
    };
    if !all.iter().any(|it| is_called(it, name)) {
        return Err(ImageError::Unknown {
            name: name.to_owned(),
            known: known(),
        });
    }
    Ok(all.into_iter().filter(|it| is_called(it, name)).collect())
}

/// `web` is `web:latest`, and `docker.io/library/web:latest`.
fn is_called(it: &impl Named, name: &str) -> bool {
    let latest = format!("{name}:latest");
    it.names().iter().any(|its| {
        [name, &latest].into_iter().any(|name| {
            its.strip_suffix(name)
                .is_some_and(|before| before.is_empty() || before.ends_with('/'))
        })
    })
}
