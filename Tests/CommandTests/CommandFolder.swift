import Foundation

/// Directory of one test, removed with its content.
final class CommandFolder {
    let path = FileManager.default.temporaryDirectory.path + "/earshot-\(UUID().uuidString.prefix(8))"

    init() {
        // If this fails, so does the first file of the test.
        try? FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// Writes a file.
    ///
    /// - Returns: its path.
    func file(_ name: String, _ text: String) throws -> String {
        let path = path + "/" + name
        try Data(text.utf8).write(to: URL(filePath: path))
        return path
    }

    func text(_ name: String) throws -> String {
        String(decoding: try Data(contentsOf: URL(filePath: path + "/" + name)), as: UTF8.self)
    }

    /// Names in the directory, in order.
    var names: [String] { get throws { try FileManager.default.contentsOfDirectory(atPath: path).sorted() } }
}
