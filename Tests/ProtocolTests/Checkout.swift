import Foundation

/// The files this test was built from.
enum Checkout {
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

    /// The names in a folder, sorted.
    static func names(_ path: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: root.appending(path: path).path()).sorted()
    }
}
