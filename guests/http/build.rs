//! Writes the table of media types: for each extension of [`EXTENSIONS`] the type that
//! the `mime_guess` crate knows, or the one of [`OWN`]. The crate's whole table, 1,400
//! extensions, would be a tenth of the image.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// The extensions that sites and downloads have.
const EXTENSIONS: &str = "
    appcache asc atom bib c cc conf cpp cs css csv diff go h hpp htc htm html ics ini java js
    json json5 jsonld kt less log lua m3u m3u8 manifest markdown mathml md mjs n3 nt patch php
    pl py rb rdf rs rss rtf sass scss sh shtml sql srt svg svgz tex ts tsv ttl txt vcf vtt
    webmanifest xhtml xml xsd xsl xslt yaml yml

    apng avif bmp emf eps gif heic heif ico jfif jp2 jpe jpeg jpg jxl png psd tga tif tiff webp
    wmf

    aac ac3 aif aiff amr flac m4a m4b mid midi mka mp2 mp3 oga ogg opus ra wav weba wma

    3gp 3g2 asf avi f4v flv m2ts m4v mkv mov mp4 mpe mpeg mpg mpd ogv qt webm wmv

    eot otf ttc ttf woff woff2

    7z apk br bz bz2 cab cbr cbz class crx deb dmg doc docm docx dot dotx epub exe gz iso jar
    key kml kmz lz mobi msi numbers odg odp ods odt pages pdf pps ppsx ppt pptx ps rar rpm swf
    tar tgz torrent wasm xls xlsm xlsx xpi xz z zip zst

    crt der geojson gpx p12 p7s pem pgp sig
    dae glb gltf obj stl usdz wrl
";

/// What differs from the crate's table, or is not in it: newer registrations (IANA),
/// and the types that browsers want.
const OWN: [(&str, &str); 28] = [
    ("7z", "application/x-7z-compressed"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("br", "application/x-brotli"),
    ("geojson", "application/geo+json"),
    ("gz", "application/gzip"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("ico", "image/vnd.microsoft.icon"),
    ("js", "text/javascript"),
    ("jxl", "image/jxl"),
    ("m4a", "audio/mp4"),
    ("map", "application/json"),
    ("mjs", "text/javascript"),
    ("opus", "audio/ogg"),
    ("stl", "model/stl"),
    ("toml", "application/toml"),
    ("ts", "video/mp2t"),
    ("ttf", "font/ttf"),
    ("usdz", "model/vnd.usdz+zip"),
    ("wav", "audio/wav"),
    ("webmanifest", "application/manifest+json"),
    ("woff", "font/woff"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zst", "application/zstd"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut types: BTreeMap<&str, &str> = EXTENSIONS
        .split_whitespace()
        .filter_map(|extension| {
            let media = mime_guess::from_ext(extension).first_raw()?;
            Some((extension, media))
        })
        .filter(|(_, media)| *media != "application/octet-stream")
        .collect();
    types.extend(OWN);
    let media_of = |media: &&str| format!("{media}{}", charset_of(media));
    let mut media: Vec<String> = types.values().map(media_of).collect();
    media.sort();
    media.dedup();
    let numbers: Vec<usize> = types
        .values()
        .filter_map(|kind| media.binary_search(&media_of(kind)).ok())
        .collect();
    let extensions: Vec<&str> = types.keys().copied().collect();
    let media: Vec<&str> = media.iter().map(String::as_str).collect();
    let mut text = String::new();
    words(&mut text, "EXTENSION", &extensions);
    words(&mut text, "MEDIA", &media);
    let count = numbers.len();
    writeln!(text, "static MEDIA_OF: [u8; {count}] = {numbers:?};").expect("a string takes all");
    let directory = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(directory.join("content_types.rs"), text).expect("OUT_DIR is writable");
}

/// Writes words as one text and where each of them ends: a reference to each would take 16 bytes.
fn words(text: &mut String, name: &str, words: &[&str]) {
    let ends = words.iter().scan(0, |end, word| {
        *end += word.len();
        Some(*end)
    });
    let ends: Vec<usize> = ends.collect();
    let (joined, count) = (words.concat(), ends.len());
    writeln!(text, "static {name}S: &str = {joined:?};").expect("a string takes all");
    writeln!(text, "static {name}_ENDS: [u16; {count}] = {ends:?};").expect("a string takes all");
}

/// Text is UTF-8 here, and so are the kinds of XML that browsers show.
fn charset_of(media: &str) -> &'static str {
    if media.starts_with("text/") || media.ends_with("+xml") {
        "; charset=utf-8"
    } else {
        ""
    }
}
