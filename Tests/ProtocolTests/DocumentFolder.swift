import Foundation

/// Files that this test was built from.
enum DocumentFolder {
    struct Fault: Error, CustomStringConvertible {
        let description: String
    }

    private static let root = URL(filePath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()

    static func bytes(_ path: String) throws -> [UInt8] {
        Array(try Data(contentsOf: root.appending(path: path)))
    }

    static func text(_ path: String) throws -> String {
        String(decoding: try bytes(path), as: UTF8.self)
    }

    /// Returns the names in a folder, sorted.
    static func names(_ path: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: root.appending(path: path).path()).sorted()
    }

    /// Returns the paths of all Swift files below a folder.
    static func swiftFiles(below path: String) throws -> [String] {
        try paths(below: path).filter { $0.hasSuffix(".swift") }.sorted()
    }

    /// Returns the paths of all files below a folder, without those of other packages.
    static func paths(below path: String) throws -> [String] {
        try FileManager.default.subpathsOfDirectory(atPath: root.appending(path: path).path())
            .filter { !$0.contains("node_modules/") }.map { "\(path)/\($0)" }
    }

    /// Returns the folder of a path, and the name in it.
    static func split(_ path: String) -> (folder: String, name: String) {
        let parts = path.split(separator: "/")
        return (parts.count > 1 ? parts.dropLast().joined(separator: "/") : ".", String(parts.last ?? ""))
    }

    /// Paths of all documents, without those in hidden folders and in folders of other packages.
    static func documents() throws -> [String] {
        let folders = try names("").filter { !$0.hasPrefix(".") && !$0.hasSuffix(".md") && isFolder($0) }
        let below = try folders.flatMap { folder in
            try FileManager.default.subpathsOfDirectory(atPath: root.appending(path: folder).path())
                .filter { $0.hasSuffix(".md") }.map { "\(folder)/\($0)" }
        }
        return try (names("").filter { $0.hasSuffix(".md") } + below)
            .filter { !$0.contains("/.") && !$0.contains("/node_modules/") }.sorted()
    }

    private static func isFolder(_ path: String) -> Bool {
        let values = try? root.appending(path: path).resourceValues(forKeys: [.isDirectoryKey])
        return values?.isDirectory == true
    }

    /// Returns the path in the checkout of a relative link in a document of `folder`.
    static func path(_ link: String, in folder: String) -> String {
        var parts = folder.split(separator: "/")
        for part in link.split(separator: "/") {
            if part == ".." { _ = parts.popLast() } else if part != "." { parts.append(part) }
        }
        return parts.joined(separator: "/")
    }

    static func exists(_ path: String) -> Bool {
        FileManager.default.fileExists(atPath: root.appending(path: path).path())
    }
}
