//! A file's media type from its name's extension. The table is made when the image
//! is built (`build.rs`).

use core::cmp::Ordering;

include!(concat!(env!("OUT_DIR"), "/content_types.rs"));

/// Longest extension of the table.
const LONGEST: usize = 11;
const UNKNOWN: &str = "application/octet-stream";

/// The value of `Content-Type` for a path; bytes of no known kind are
/// `application/octet-stream`. Text is declared as UTF-8.
pub(crate) fn of(path: &str) -> &'static str {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    name.rsplit_once('.')
        .and_then(|(_, extension)| find(extension.as_bytes()))
        .unwrap_or(UNKNOWN)
}

fn find(extension: &[u8]) -> Option<&'static str> {
    let mut lower = [0; LONGEST];
    let lower = lower.get_mut(..extension.len())?;
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    let (mut low, mut high) = (0, EXTENSION_ENDS.len());
    while low < high {
        let middle = (low + high) / 2;
        let known = word(EXTENSIONS, &EXTENSION_ENDS, middle);
        match known.as_bytes().cmp(lower) {
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
            Ordering::Equal => return Some(media_of(middle)),
        }
    }
    None
}

/// The media type of an extension by its number.
fn media_of(extension: usize) -> &'static str {
    word(MEDIAS, &MEDIA_ENDS, MEDIA_OF[extension].into())
}

/// A word of a text by its number.
fn word(text: &'static str, ends: &[u16], number: usize) -> &'static str {
    let start = number.checked_sub(1).map_or(0, |before| ends[before]);
    let range = usize::from(start)..usize::from(ends[number]);
    text.get(range).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_extension_of_the_name_counts() {
        assert_eq!(of("index.html"), "text/html; charset=utf-8");
        assert_eq!(of("a.b/c.tar.GZ"), "application/gzip");
        assert_eq!(of("dir.html/README"), UNKNOWN);
        assert_eq!(of("noext"), UNKNOWN);
        assert_eq!(of("trailing."), UNKNOWN);
        assert_eq!(of("a.extension-that-is-longer"), UNKNOWN);
        assert_eq!(of(""), UNKNOWN);
    }

    #[test]
    fn extensions_are_sorted_lower_case_and_fit() {
        let extension = |number| word(EXTENSIONS, &EXTENSION_ENDS, number);
        let types = (0..EXTENSION_ENDS.len()).map(|number| (extension(number), media_of(number)));
        assert!(types.clone().is_sorted_by(|(a, _), (b, _)| a < b));
        for (extension, media) in types {
            assert_eq!(extension, extension.to_ascii_lowercase());
            assert!(
                extension.len() <= LONGEST && media.contains('/'),
                "{extension}"
            );
        }
    }

    #[test]
    fn what_sites_are_made_of_is_known() {
        for (extension, media) in [
            ("css", "text/css; charset=utf-8"),
            ("js", "text/javascript; charset=utf-8"),
            ("json", "application/json"),
            ("svg", "image/svg+xml; charset=utf-8"),
            ("svgz", "image/svg+xml; charset=utf-8"),
            ("webp", "image/webp"),
            ("avif", "image/avif"),
            ("jxl", "image/jxl"),
            ("heic", "image/heic"),
            ("apng", "image/apng"),
            ("ico", "image/vnd.microsoft.icon"),
            ("woff2", "font/woff2"),
            ("eot", "application/vnd.ms-fontobject"),
            ("mp3", "audio/mpeg"),
            ("m4a", "audio/mp4"),
            ("aac", "audio/aac"),
            ("opus", "audio/ogg"),
            ("mp4", "video/mp4"),
            ("m4v", "video/x-m4v"),
            ("mov", "video/quicktime"),
            ("mpg", "video/mpeg"),
            ("mkv", "video/x-matroska"),
            ("gltf", "model/gltf+json"),
            ("glb", "model/gltf-binary"),
            ("geojson", "application/geo+json"),
            ("jsonld", "application/ld+json"),
            ("wasm", "application/wasm"),
            ("pdf", "application/pdf"),
            ("zip", "application/zip"),
            ("7z", "application/x-7z-compressed"),
            ("bz2", "application/x-bzip2"),
            ("xz", "application/x-xz"),
            ("zst", "application/zstd"),
            (
                "docx",
                "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            ),
            (
                "xlsx",
                "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            ),
            (
                "pptx",
                "application/vnd.openxmlformats-officedocument.presentationml.presentation",
            ),
            ("odt", "application/vnd.oasis.opendocument.text"),
            ("rtf", "application/rtf"),
            ("epub", "application/epub+zip"),
            ("jar", "application/java-archive"),
            ("apk", "application/vnd.android.package-archive"),
            ("webmanifest", "application/manifest+json"),
            ("atom", "application/atom+xml; charset=utf-8"),
            ("md", "text/markdown; charset=utf-8"),
            ("csv", "text/csv; charset=utf-8"),
            ("yaml", "application/yaml"),
        ] {
            assert_eq!(of(&alloc::format!("a.{extension}")), media, "{extension}");
        }
    }
}
