import Foundation

/// The files of this checkout.
enum Checkout {
    /// The package's root, found from where this file stands.
    static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    /// Every file below one of `folders` whose name ends in one of `endings`; those of the root itself for ".".
    static func files(in folders: [String], endings: [String]) throws -> [SourceFile] {
        var found: [SourceFile] = []
        for folder in folders {
            for path in paths(in: folder).sorted() where endings.contains(where: path.hasSuffix) {
                let text = String(decoding: try Data(contentsOf: root.appending(path: path)), as: UTF8.self)
                found.append(SourceFile(path: path, text: text))
            }
        }
        return found
    }

    /// The names of the folders in `folder`.
    static func subfolders(of folder: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(
            at: root.appending(path: folder), includingPropertiesForKeys: [.isDirectoryKey]
        ).filter(\.hasDirectoryPath).map(\.lastPathComponent).sorted()
    }

    /// Paths from the root. Only what lies in the root itself for ".".
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
