import Foundation
import Synchronization

/// Files of this checkout.
enum Checkout {
    /// Root of the package, two folders above this file's.
    static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    /// Files by path: each is read once for all rules.
    private static let known = Mutex<[String: SourceFile]>([:])

    /// Returns every file below one of `folders` whose name ends in one of `endings`. "." means the files of the root
    /// itself.
    static func files(in folders: [String], endings: [String]) throws -> [SourceFile] {
        var found: [SourceFile] = []
        for folder in folders {
            for path in paths(in: folder).sorted() where endings.contains(where: path.hasSuffix) {
                found.append(try file(path))
            }
        }
        return found
    }

    private static func file(_ path: String) throws -> SourceFile {
        if let file = known.withLock({ $0[path] }) { return file }
        let text = String(decoding: try Data(contentsOf: root.appending(path: path)), as: UTF8.self)
        let file = SourceFile(path: path, text: text)
        known.withLock { $0[path] = file }
        return file
    }

    /// Returns the names of the folders in `folder`.
    static func subfolders(of folder: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(
            at: root.appending(path: folder), includingPropertiesForKeys: [.isDirectoryKey]
        ).filter(\.hasDirectoryPath).map(\.lastPathComponent).sorted()
    }

    /// Returns paths relative to the root; only the root's own files for ".".
    private static func paths(in folder: String) -> [String] {
        let start = folder == "." ? root : root.appending(path: folder)
        let options: FileManager.DirectoryEnumerationOptions =
            folder == "." ? [.skipsSubdirectoryDescendants, .skipsHiddenFiles] : .skipsHiddenFiles
        let found = FileManager.default.enumerator(
            at: start, includingPropertiesForKeys: [.isDirectoryKey], options: options)
        return (found?.allObjects ?? []).compactMap { $0 as? URL }.filter { !$0.hasDirectoryPath }
            .map { String($0.path.dropFirst(root.path.count + 1)) }.filter { !$0.contains("/__pycache__/") }
    }
}
