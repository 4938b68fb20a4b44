//! The packages, and what of them is built as a program.

use std::path::{Path, PathBuf};

/// Debian's source packages whose files are compiled one by one.
pub const PACKAGES: &[&str] = &[
    "bc",
    "bearssl",
    "brotli",
    "bzip2",
    "cjson",
    "cmark",
    "dash",
    "discount",
    "duktape",
    "expat",
    "flac",
    "giflib",
    "gmp",
    "jansson",
    "jimtcl",
    "jq",
    "libbsd",
    "libdeflate",
    "libjpeg-turbo",
    "libogg",
    "libonig",
    "libpng1.6",
    "libsodium",
    "libspng",
    "libtomcrypt",
    "libtommath",
    "libunistring",
    "libvorbis",
    "libwebp",
    "libxml2",
    "libyaml",
    "libzstd",
    "lodepng",
    "lua5.4",
    "lz4",
    "lzo2",
    "mawk",
    "mbedtls",
    "mujs",
    "nettle",
    "openjpeg2",
    "opus",
    "pcre2",
    "picosat",
    "speex",
    "sqlite3",
    "tcc",
    "tidy-html5",
    "tinyscheme",
    "tre",
    "utf8proc",
    "xxhash",
    "xz-utils",
    "yajl",
    "zlib",
    "zopfli",
];

/// A library with a driver of ours: `foreign/NAME.c`.
pub struct Program {
    pub name: &'static str,
    pub package: &'static str,
    /// Files, and all C files of folders that end in a slash.
    pub sources: &'static [&'static str],
    pub headers: &'static [&'static str],
    pub flags: &'static [&'static str],
}

const fn program(
    name: &'static str,
    package: &'static str,
    sources: &'static [&'static str],
    headers: &'static [&'static str],
    flags: &'static [&'static str],
) -> Program {
    Program {
        name,
        package,
        sources,
        headers,
        flags,
    }
}

#[rustfmt::skip]
pub const PROGRAMS: &[Program] = &[
    program("brotli", "brotli", &["c/common/", "c/enc/", "c/dec/"], &["c/include"], &[]),
    program("bzip2", "bzip2",
        &["blocksort.c", "huffman.c", "crctable.c", "randtable.c", "compress.c", "decompress.c", "bzlib.c"], &["."], &["-DBZ_NO_STDIO"]),
    program("cjson", "cjson", &["cJSON.c"], &["."], &[]),
    program("expat", "expat", &["expat/lib/xmlparse.c", "expat/lib/xmlrole.c", "expat/lib/xmltok.c"], &["expat/lib"],
        &["-DXML_POOR_ENTROPY", "-DXML_CONTEXT_BYTES=1024", "-DXML_DTD", "-DXML_NS", "-DBYTEORDER=1234"]),
    program("gmp", "gmp", &["mini-gmp/mini-gmp.c"], &["mini-gmp"], &[]),
    program("libdeflate", "libdeflate", &["lib/", "lib/x86/"], &["."], &[]),
    program("libtommath", "libtommath", &["."], &["."], &[]),
    program("libyaml", "libyaml", &["src/"], &["include", "src"],
        &["-DYAML_VERSION_MAJOR=0", "-DYAML_VERSION_MINOR=2", "-DYAML_VERSION_PATCH=5", "-DYAML_VERSION_STRING=\"0.2.5\""]),
    program("lodepng", "lodepng", &[], &["."], &["-DLODEPNG_NO_COMPILE_CPP", "-xc", "-includelodepng.cpp"]),
    program("lua", "lua5.4",
        &["src/lapi.c", "src/lauxlib.c", "src/lbaselib.c", "src/lcode.c", "src/lcorolib.c", "src/lctype.c", "src/ldebug.c", "src/ldo.c",
          "src/ldump.c", "src/lfunc.c", "src/lgc.c", "src/llex.c", "src/lmathlib.c", "src/lmem.c", "src/lobject.c", "src/lopcodes.c",
          "src/lparser.c", "src/lstate.c", "src/lstring.c", "src/lstrlib.c", "src/ltable.c", "src/ltablib.c", "src/ltm.c",
          "src/lundump.c", "src/lvm.c", "src/lzio.c"],
        &["src"], &["-Dl_signalT=int", "-Dluai_makeseed(L)=7", "-D_WASI_EMULATED_SIGNAL"]),
    program("lz4", "lz4", &["lib/lz4.c", "lib/lz4hc.c"], &["lib"], &[]),
    program("lzo2", "lzo2", &["src/lzo1x_1.c", "src/lzo1x_9x.c", "src/lzo1x_d2.c", "src/lzo_util.c"], &["include", "src"], &[]),
    program("picosat", "picosat", &["picosat.c"], &["."], &["-DNDEBUG", "-DNGETRUSAGE"]),
    program("utf8proc", "utf8proc", &["utf8proc.c"], &["."], &["-DUTF8PROC_STATIC"]),
    program("xxhash", "xxhash", &["xxhash.c"], &["."], &[]),
    program("zlib", "zlib",
        &["adler32.c", "compress.c", "crc32.c", "deflate.c", "inffast.c", "inflate.c", "inftrees.c", "trees.c", "uncompr.c", "zutil.c"],
        &["."], &[]),
    program("zopfli", "zopfli",
        &["src/zopfli/blocksplitter.c", "src/zopfli/cache.c", "src/zopfli/deflate.c", "src/zopfli/gzip_container.c", "src/zopfli/hash.c",
          "src/zopfli/katajainen.c", "src/zopfli/lz77.c", "src/zopfli/squeeze.c", "src/zopfli/tree.c", "src/zopfli/util.c",
          "src/zopfli/zlib_container.c", "src/zopfli/zopfli_lib.c"],
        &["src/zopfli"], &[]),
    program("zstd", "libzstd", &["lib/common/", "lib/compress/", "lib/decompress/"], &["lib"], &["-DZSTD_DISABLE_ASM"]),
];

/// The files that a word of [`Program::sources`] means.
pub fn files(package: &Path, word: &str) -> Vec<PathBuf> {
    let path = package.join(word);
    if !path.is_dir() {
        return vec![path];
    }
    let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "c"));
    files.sort();
    files
}
