/* SPDX-License-Identifier: Apache-2.0 */
#include "core/media_type.h"

#include <string.h>
#include <strings.h>

/* What snippets leave behind. No character set is claimed: that would take a look at the content. */
static const struct row {
	const char *extension, *type;
} rows[] = {
    /* text */
    {"txt", "text/plain"},
    {"text", "text/plain"},
    {"log", "text/plain"},
    {"csv", "text/csv"},
    {"tsv", "text/tab-separated-values"},
    {"md", "text/markdown"},
    {"html", "text/html"},
    {"htm", "text/html"},
    {"css", "text/css"},
    {"js", "text/javascript"},
    {"py", "text/x-python"},
    {"xml", "application/xml"},
    {"json", "application/json"},
    {"jsonl", "application/jsonl"},
    {"ndjson", "application/x-ndjson"},
    {"geojson", "application/geo+json"},
    {"ipynb", "application/x-ipynb+json"},
    {"yaml", "application/yaml"},
    {"yml", "application/yaml"},
    {"toml", "application/toml"},
    {"sql", "application/sql"},
    {"tex", "application/x-tex"},
    {"ics", "text/calendar"},
    {"vcf", "text/vcard"},
    /* pictures, sound, films, fonts */
    {"png", "image/png"},
    {"jpg", "image/jpeg"},
    {"jpeg", "image/jpeg"},
    {"gif", "image/gif"},
    {"webp", "image/webp"},
    {"avif", "image/avif"},
    {"bmp", "image/bmp"},
    {"tif", "image/tiff"},
    {"tiff", "image/tiff"},
    {"ico", "image/vnd.microsoft.icon"},
    {"svg", "image/svg+xml"},
    {"eps", "application/postscript"},
    {"ps", "application/postscript"},
    {"wav", "audio/wav"},
    {"mp3", "audio/mpeg"},
    {"ogg", "audio/ogg"},
    {"flac", "audio/flac"},
    {"m4a", "audio/mp4"},
    {"mid", "audio/midi"},
    {"mp4", "video/mp4"},
    {"webm", "video/webm"},
    {"mov", "video/quicktime"},
    {"avi", "video/x-msvideo"},
    {"ttf", "font/ttf"},
    {"otf", "font/otf"},
    {"woff", "font/woff"},
    {"woff2", "font/woff2"},
    /* documents */
    {"pdf", "application/pdf"},
    {"rtf", "application/rtf"},
    {"epub", "application/epub+zip"},
    {"doc", "application/msword"},
    {"docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"},
    {"xls", "application/vnd.ms-excel"},
    {"xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
    {"ppt", "application/vnd.ms-powerpoint"},
    {"pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"},
    {"odt", "application/vnd.oasis.opendocument.text"},
    {"ods", "application/vnd.oasis.opendocument.spreadsheet"},
    {"odp", "application/vnd.oasis.opendocument.presentation"},
    /* data and archives */
    {"parquet", "application/vnd.apache.parquet"},
    {"arrow", "application/vnd.apache.arrow.file"},
    {"sqlite", "application/vnd.sqlite3"},
    {"sqlite3", "application/vnd.sqlite3"},
    {"db", "application/vnd.sqlite3"},
    {"h5", "application/x-hdf5"},
    {"hdf5", "application/x-hdf5"},
    {"zip", "application/zip"},
    {"gz", "application/gzip"},
    {"tgz", "application/gzip"},
    {"bz2", "application/x-bzip2"},
    {"xz", "application/x-xz"},
    {"zst", "application/zstd"},
    {"7z", "application/x-7z-compressed"},
    {"tar", "application/x-tar"},
    {"whl", "application/zip"},
    {"wasm", "application/wasm"},
};

const char *media_type(const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len), *name = slash ? slash + 1 : path;
	size_t name_len = len - (size_t)(name - path), n;
	const char *dot = memrchr(name, '.', name_len);

	/* The dot of a hidden file is no extension's. */
	if (dot && dot > name) {
		n = name_len - (size_t)(dot + 1 - name);
		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
			if (strlen(rows[i].extension) == n && !strncasecmp(rows[i].extension, dot + 1, n))
				return rows[i].type;
	}
	return "application/octet-stream";
}
