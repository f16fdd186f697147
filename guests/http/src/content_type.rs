//! A file's media type from its name's extension.

/// The value of `Content-Type` for a path; bytes of no known kind are
/// `application/octet-stream`. Text is said to be UTF-8.
pub fn of(path: &str) -> &'static str {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let Some((_, extension)) = name.rsplit_once('.') else {
        return UNKNOWN;
    };
    TYPES
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(extension))
        .map_or(UNKNOWN, |(_, media)| media)
}

const UNKNOWN: &str = "application/octet-stream";

/// The IANA registry's types of what sites are made of.
const TYPES: [(&str, &str); 49] = [
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("webmanifest", "application/manifest+json"),
    ("xml", "text/xml; charset=utf-8"),
    ("rss", "application/rss+xml; charset=utf-8"),
    ("atom", "application/atom+xml; charset=utf-8"),
    ("xhtml", "application/xhtml+xml; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("log", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("ics", "text/calendar; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("toml", "application/toml"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("svg", "image/svg+xml; charset=utf-8"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("ico", "image/vnd.microsoft.icon"),
    ("bmp", "image/bmp"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("ttf", "font/ttf"),
    ("otf", "font/otf"),
    ("mp3", "audio/mpeg"),
    ("ogg", "audio/ogg"),
    ("oga", "audio/ogg"),
    ("wav", "audio/wav"),
    ("flac", "audio/flac"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
    ("ogv", "video/ogg"),
    ("pdf", "application/pdf"),
    ("wasm", "application/wasm"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("tar", "application/x-tar"),
];

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
        assert_eq!(of(""), UNKNOWN);
    }

    #[test]
    fn no_extension_is_listed_twice() {
        for (at, (extension, media)) in TYPES.iter().enumerate() {
            assert!(
                TYPES[..at].iter().all(|(other, _)| other != extension),
                "{extension}"
            );
            assert!(media.contains('/'));
        }
    }
}
