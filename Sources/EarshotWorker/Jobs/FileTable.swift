internal import EarshotHTTP
internal import EarshotWire

/// Certificate and key files that jobs name, as the broker sent them. A worker in a sandbox cannot open them.
struct FileTable {
    private struct Entry {
        let path: String
        let content: [UInt8]
        /// Reason why the broker cannot read the file; nil if it has.
        let readError: String?
    }

    /// Entries by place.
    private var entries = [Entry?](repeating: nil, count: WireLimits.filesPerWorker)

    /// Stores a file at a place, instead of the file there and an earlier version elsewhere.
    mutating func storeFile(at place: Int, path: String, content: [UInt8], error: String?) {
        guard entries.indices.contains(place) else { return }
        for index in entries.indices where entries[index]?.path == path { entries[index] = nil }
        entries[place] = Entry(path: path, content: content, readError: error)
    }

    /// Returns the content of a file.
    ///
    /// - Parameter field: Name of the request's field, for the error.
    /// - Throws: A refusal with the code `tls`.
    func content(ofPath path: String, forField field: StaticString) throws(Refusal) -> [UInt8] {
        guard let entry = entries.lazy.compactMap(\.self).first(where: { $0.path == path }) else {
            throw Refusal(.tls, "Cannot read the \(field): the broker did not send it.")
        }
        if let error = entry.readError {
            throw Refusal(.tls, "Cannot read the \(field): \(Printable.sanitizedSentence(error)).")
        }
        return entry.content
    }
}
