/// Relative paths from users and lists.
enum RelativePath {
    /// Whether a path stays below its base: not empty, not absolute, and without `..`.
    static func isInside(_ path: String) -> Bool {
        !path.isEmpty && path.utf8.first != UInt8(ascii: "/")
            && !path.utf8.split(separator: UInt8(ascii: "/")).contains { $0.elementsEqual("..".utf8) }
    }
}
