internal import EarshotClient
internal import EarshotHTTP
internal import EarshotWire

/// Names of output files below a directory, each given once.
struct OutputNames {
    private let template: OutputTemplate?
    /// Whether the response may name its file.
    private let readsResponse: Bool
    private var names = FileNames()

    init(template: OutputTemplate? = nil, readsResponse: Bool = false) {
        self.template = template
        self.readsResponse = readsResponse
    }

    /// Returns the path for a URL before its request; nil if it depends on the response.
    ///
    /// - Parameter index: index in the list, from 1.
    mutating func pathBeforeResponse(_ entry: ListEntry, index: Int) -> String? {
        let isFixed = entry.hasName || !readsResponse && template?.needsBody != true
        return isFixed ? path(entry, index: index, nil) : nil
    }

    /// Returns the path for a URL, as far as it is known before the response, without regard to other files.
    func expectedPath(_ entry: ListEntry, index: Int) -> String {
        let name = name(entry, index, nil)
        return entry.path(orNamed: name) ?? name
    }

    /// Returns the path for the body of a URL.
    mutating func path(_ entry: ListEntry, index: Int, _ response: Terminal.Response?) -> String {
        guard !entry.options.isEmpty || template != nil || readsResponse else { return names.name(for: entry.url) }
        let path = entry.path(orNamed: name(entry, index, response)).map(FileNames.safePath)
        return names.unique(path ?? name(entry, index, response))
    }

    private func name(_ entry: ListEntry, _ index: Int, _ response: Terminal.Response?) -> String {
        if readsResponse, let response,
            let field = HeaderFields(lines: response.httpFields).first(where: { $0.isNamed("content-disposition") }),
            let name = ContentDisposition.fileName(field.value)
        {
            return name
        }
        return template?.path(of: entry.url, index: index, sha256: response?.sha256) ?? FileNames.name(of: entry.url)
    }
}
