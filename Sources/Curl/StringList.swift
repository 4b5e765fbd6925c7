internal import CLibCurl

/// A list of strings that libcurl reads while a transfer runs (struct curl_slist). Owned; freed by `deinit`.
@safe struct StringList: ~Copyable {
    private(set) var head: UnsafeMutablePointer<curl_slist>?

    /// Whether there is no string.
    var isEmpty: Bool { unsafe head == nil }

    /// Takes copies of `lines`, which hold no NUL.
    init(_ lines: [[UInt8]] = []) {
        unsafe head = nil
        for line in lines { append(line) }
    }

    deinit {
        unsafe curlshim_slist_free_all(head)
    }

    /// Adds a copy of `line`. Stops the process when there is no memory for it.
    private mutating func append(_ line: [UInt8]) {
        let text = line.map { CChar(bitPattern: $0) } + [0]
        guard let grown = unsafe curlshim_slist_append(head, text) else {
            preconditionFailure("curl_slist_append failed")
        }
        unsafe head = grown
    }
}
