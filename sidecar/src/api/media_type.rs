//! What a file is, told from its name; where that says nothing, from whether it is text.

use http::HeaderValue;

const BY_ENDING: &[(&str, &str)] = &[
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ics", "text/calendar; charset=utf-8"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("md", "text/markdown; charset=utf-8"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("parquet", "application/vnd.apache.parquet"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webp", "image/webp"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
];

pub fn of(name: &str, binary: bool) -> HeaderValue {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let known = ending.and_then(|ending| BY_ENDING.iter().find(|(known, _)| *known == ending));
    HeaderValue::from_static(match known {
        Some((_, media_type)) => media_type,
        None if binary => "application/octet-stream",
        None => "text/plain; charset=utf-8",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_count_first_and_then_the_content() {
        assert_eq!(of("a.b/report.PDF", true), "application/pdf");
        assert_eq!(of("Makefile", false), "text/plain; charset=utf-8");
        assert_eq!(of("a.rs", false), "text/plain; charset=utf-8");
        assert_eq!(of("core", true), "application/octet-stream");
    }
}
