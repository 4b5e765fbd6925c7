internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// URL of a list with its own options, as `URLList` and `ListInput` read it.
struct ListEntry: Equatable {
    var url: String
    /// Options in the order of the list; empty for most URLs.
    var options: [EntryOption] = []

    /// Applies the options to a request for the URL.
    func apply(to fetch: inout Fetch) {
        for option in options {
            switch option {
            case .header(let field): fetch.add(field: field)
            case .checksum(let digest): fetch.options.digest = digest
            case .out, .dir, .invalid: break
            }
        }
    }

    /// Reason why the entry cannot be fetched; nil for none.
    var fault: String? {
        for case .invalid(let reason) in options { return reason }
        return nil
    }

    /// Whether an option names the file.
    var hasName: Bool { options.contains { if case .out = $0 { true } else { false } } }

    /// Whether an option states the hash of the body.
    var hasChecksum: Bool { options.contains { if case .checksum = $0 { true } else { false } } }

    /// Whether an option names the file or its directory.
    var hasPath: Bool { path(orNamed: "") != nil }

    /// Path of the file below the output directory, from the options `dir` and `out`. Nil without these.
    ///
    /// - Parameter name: name for an entry that has `dir` alone.
    func path(orNamed name: @autoclosure () -> String) -> String? {
        var (folder, file): (String?, String?)
        for option in options {
            switch option {
            case .dir(let path): folder = path
            case .out(let path): file = path
            case .header, .checksum, .invalid: break
            }
        }
        guard folder != nil || file != nil else { return nil }
        return [folder, file ?? name()].compactMap(\.self).joined(separator: "/")
    }
}

extension Fetch {
    /// Whether the request has a header field of this name.
    ///
    /// - Parameter name: name in lower case.
    func hasField(_ name: String) -> Bool {
        HeaderFields(lines: httpFields).contains(name)
    }

    /// Adds the type of a form to a body of --data, unless the user gave a type.
    mutating func addFormType() {
        guard body != nil, !hasField("content-type") else { return }
        add(field: "content-type: application/x-www-form-urlencoded")
    }

    /// Adds a header field of the HTTP request.
    mutating func add(field: String) {
        if !httpFields.isEmpty { httpFields.append(UInt8(ascii: "\n")) }
        httpFields += ByteText.bytes(of: field)
    }
}
