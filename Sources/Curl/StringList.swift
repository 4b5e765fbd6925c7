internal import CLibCurl

/// List of strings that libcurl reads during a transfer (struct curl_slist). Owned; freed by `deinit`.
@safe struct StringList: ~Copyable {
    private(set) var head: UnsafeMutablePointer<curl_slist>?

    /// Whether the list is empty.
    var isEmpty: Bool { unsafe head == nil }

    /// Copies `lines`, which must not contain NUL.
    init(_ lines: [[UInt8]] = []) {
        unsafe head = nil
        for line in lines { append(line) }
    }

    deinit {
        unsafe curlshim_slist_free_all(head)
    }

    /// Appends a copy of `line`. Traps if memory is exhausted.
    private mutating func append(_ line: [UInt8]) {
        let text = line.map { CChar(bitPattern: $0) } + [0]
        guard let grown = unsafe curlshim_slist_append(head, text) else {
            preconditionFailure("curl_slist_append failed")
        }
        unsafe head = grown
    }
}
