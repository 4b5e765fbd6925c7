internal import CBuild
internal import EarshotLoop
internal import EarshotWire

/// Output of `earshot --version`: version, commit, protocols, and the libraries on this machine.
enum VersionReport {
    /// First line. Programs read the version from it.
    static let firstLine = "earshot \(EARSHOT_VERSION)"

    /// Version and build, which differ between two nodes of a cluster that run different programs.
    static var build: String { "\(firstLine)\n\(unsafe String(cString: build_facts()))" }

    /// A library: its name, and its version or nil if it is not installed.
    private typealias Library = (name: String, version: String?)

    static var text: String {
        table(buildFacts(unsafe String(cString: build_facts())) + protocols + libraries)
    }

    /// Returns commit and Swift version of a release; "unknown" in other builds.
    static func buildFacts(_ text: String) -> [(name: String, value: String)] {
        let lines = text.split(separator: "\n").map { $0.split(separator: " ", maxSplits: 1) }
        return ["commit", "Swift"].map { name in
            let line = lines.first { $0.count == 2 && $0[0] == name }
            return (name, line.map { String($0[1]) } ?? "unknown")
        }
    }

    /// Returns the first line and a row of each name, with aligned values.
    static func table(_ rows: [(name: String, value: String)]) -> String {
        let width = (rows.map(\.name.count).max() ?? 0) + 2
        return firstLine + "\n"
            + rows.map { name, value in
                name + String(repeating: " ", count: width - name.count) + value + "\n"
            }.joined()
    }

    private static var protocols: [(name: String, value: String)] {
        [("protocols", "\(Hello.version) clients, \(Ready.version) workers, ZMTP/3.0 without a library")]
    }

    /// libcurl also names the libraries that provide its features.
    private static var libraries: [(name: String, value: String)] {
        let brotli = SharedLibrary("libbrotlidec.so.1")?.numberResult(ofFunction: "BrotliDecoderVersion")
        let all: [Library] = [
            ("libcurl", SharedLibrary("libcurl.so.4")?.textResult(ofFunction: "curl_version").map(removingLibraryName)),
            ("c-ares", SharedLibrary("libcares.so.2")?.textResult(ofFunction: "ares_version")),
            ("SQLite", SharedLibrary("libsqlite3.so.0")?.textResult(ofFunction: "sqlite3_libversion")),
            (
                "OpenSSL",
                SharedLibrary("libcrypto.so.3")?.textResult(ofFunction: "OpenSSL_version").map(removingLibraryName)
            ),
            ("libidn2", SharedLibrary("libidn2.so.0")?.textResult(ofFunction: "idn2_check_version")),
            ("libpsl", SharedLibrary("libpsl.so.5")?.textResult(ofFunction: "psl_get_version")),
            ("zlib", SharedLibrary("libz.so.1")?.textResult(ofFunction: "zlibVersion")),
            ("brotli", brotli.map { "\($0 >> 24).\($0 >> 12 & 0xfff).\($0 & 0xfff)" }),
            ("zstd", SharedLibrary("libzstd.so.1")?.textResult(ofFunction: "ZSTD_versionString")),
            ("libzmq", SharedLibrary("libzmq.so.5")?.versionResult(ofFunction: "zmq_version")),
        ]
        return all.map { ($0.name, $0.version ?? "not installed") }
    }

    /// Removes the name of the library from the start of its version, as in `libcurl/7.88.1 OpenSSL/3.0.17`.
    private static func removingLibraryName(_ text: String) -> String {
        text.firstIndex { $0 == "/" || $0 == " " }.map { String(text[text.index(after: $0)...]) } ?? text
    }
}
