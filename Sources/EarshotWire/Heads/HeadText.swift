/// A word, name or value of a head, as a position in its bytes. Only text that a message keeps becomes a `String`.
struct HeadText {
    /// The bytes that contain the text. Not a slice: the compiler removes retains of a whole array only.
    fileprivate let source: [UInt8]
    fileprivate let extent: HeadFields.Extent

    init(_ source: [UInt8], _ extent: HeadFields.Extent) {
        self.source = source
        self.extent = extent
    }

    /// Creates text that is not part of a head.
    init(bytes: ArraySlice<UInt8>) {
        source = Array(bytes)
        extent = HeadFields.Extent(start: 0, end: UInt32(clamping: source.count))
    }

    var count: Int { Int(extent.end) - Int(extent.start) }

    /// Contains no control characters.
    var bytes: ArraySlice<UInt8> { source[Int(extent.start)..<Int(extent.end)] }

    /// The text as a string. Bytes that are not UTF-8 become U+FFFD.
    var string: String { String(decoding: bytes, as: UTF8.self) }

    /// Without a branch for each byte, so that the compiler vectorizes the loop.
    private var isASCII: Bool {
        let span = source.span.extracting(Int(extent.start)..<Int(extent.end))
        var union: UInt8 = 0
        for index in span.indices { union |= span[index] }
        return union < 0x80
    }

    /// The text of a URL. Bytes that are not UTF-8 become percent-escapes.
    var percentEscapedString: String {
        // Nearly all URLs are ASCII. Validation takes a second pass and a copy.
        if isASCII { return string }
        if let text = String(validating: bytes, as: UTF8.self) { return text }
        var text: [UInt8] = []
        var parser = Unicode.UTF8.ForwardParser()
        var rest = bytes.makeIterator()
        var start = bytes.startIndex
        while true {
            switch parser.parseScalar(from: &rest) {
            case .valid(let encoded):
                text += encoded
                start += encoded.count
            case .error(let length):
                for byte in bytes[start..<start + length] { PercentEncoding.appendEscape(of: byte, to: &text) }
                start += length
            case .emptyInput: return String(decoding: text, as: UTF8.self)
            }
        }
    }

    /// Returns the text without its first `count` bytes. It must have that many.
    func dropFirst(_ count: Int) -> HeadText {
        HeadText(source, HeadFields.Extent(start: extent.start + UInt32(count), end: extent.end))
    }

    /// Inlined, because the length of a literal is a constant and distinguishes nearly all names.
    static func == (text: HeadText, name: String) -> Bool {
        name.utf8.count == text.count && text.hasBytes(of: name)
    }

    /// Enables `switch` over names.
    static func ~= (name: String, text: HeadText) -> Bool { text == name }

    private func hasBytes(of name: String) -> Bool {
        let utf8 = name.utf8
        let wanted = utf8.span
        let bytes = source.span.extracting(Int(extent.start)..<Int(extent.end))
        for index in wanted.indices where bytes[index] != wanted[index] { return false }
        return true
    }
}

/// The named fields of a head, in their order. If a name occurs twice, the last value counts.
struct HeadFields: Sequence {
    /// Position of a word, name or value in the head.
    struct Extent {
        let start: UInt32
        let end: UInt32
    }

    fileprivate let head: [UInt8]
    /// Positions of alternating names and values.
    fileprivate let extents: ArraySlice<Extent>

    init(_ head: [UInt8], _ extents: ArraySlice<Extent>) {
        self.head = head
        self.extents = extents
    }

    /// The value of the field of this name; nil if it is absent.
    subscript(_ name: String) -> HeadText? {
        var found: HeadText?
        for field in self where field.name == name { found = field.value }
        return found
    }

    func makeIterator() -> Iterator { Iterator(fields: self, index: extents.startIndex) }

    struct Iterator: IteratorProtocol {
        fileprivate let fields: HeadFields
        fileprivate var index: Int

        mutating func next() -> (name: HeadText, value: HeadText)? {
            guard index < fields.extents.endIndex else { return nil }
            defer { index += 2 }
            return (text(at: fields.extents[index]), text(at: fields.extents[index + 1]))
        }

        private func text(at extent: Extent) -> HeadText {
            HeadText(fields.head, extent)
        }
    }
}
