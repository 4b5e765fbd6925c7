internal import EarshotHTTP
internal import EarshotWire

/// Header lines of a response as libcurl delivers them, reduced to the last block.
///
/// ```
/// beforeStatusLine → inFieldBlock → complete
/// complete         → inFieldBlock      (another status line: interim response (1xx) or a proxy's CONNECT before it)
/// ```
///
/// A new block replaces the one before. Trailers after the last block are dropped.
struct ResponseHead {
    /// Reason why a head is rejected.
    enum Fault: Error, Equatable {
        /// Invalid status line; a NUL, bare CR or bare LF in a line; a folded line without a field before it; or a
        /// field that delimits the body in a form that parsers read differently.
        case malformed
        /// More than `WireLimits.responseFieldBytes` of fields.
        case fieldsTooLong
    }

    private enum Phase {
        case beforeStatusLine
        case inFieldBlock
        case complete
    }

    /// The last field of the block, which a folded line continues.
    private enum LastField {
        case none
        /// Begins at this index of `fields`.
        case keptField(start: Int, isCookie: Bool)
        /// Delimits the body.
        case framingField
        /// Not in `fields`.
        case droppedField
    }

    private var phase = Phase.beforeStatusLine
    /// Status code of the last block; 0 before the first.
    private(set) var status = 0
    /// Fields of the last block, separated by LF, with folded lines joined.
    private(set) var fields: [UInt8] = []

    /// Fields of `fields` that delimit the body, copied so that lookups need not scan all fields.
    private(set) var framingFields: [UInt8] = []
    private var lastField = LastField.none
    /// Set of the name lengths in `fields`, one bit for each. The last bit stands for all lengths from 63 on.
    private var presentNameLengths: UInt64 = 0

    /// Whether the last block is complete and belongs to a final response, not to an interim one.
    var isComplete: Bool { phase == .complete && status >= 200 }

    /// Returns false only if no field in `fields` has this name. Compares the lengths of names, which excludes most
    /// absent names without a scan.
    func mayHaveField(named name: String) -> Bool {
        presentNameLengths & Self.lengthBit(nameLength: name.utf8.count) != 0
    }

    /// Whether a field delimits the body: RFC 9112, section 6.3.
    var hasFramingField: Bool {
        let fields = HeaderFields(lines: framingFields)
        return fields.contains("content-length")
            || fields.values(named: "transfer-encoding").contains { $0.lowercased().contains("chunked") }
    }

    /// Appends one line including its line end.
    ///
    /// - Returns: Whether the line completed the head.
    mutating func append(_ line: Span<UInt8>) throws(Fault) -> Bool {
        var count = line.count
        if count > 0, line[count - 1] == UInt8(ascii: "\n") { count -= 1 }
        if count > 0, line[count - 1] == UInt8(ascii: "\r") { count -= 1 }
        let content = line.extracting(0..<count)
        let hasControls = Self.hasControls(content)
        if hasControls {
            for index in content.indices where Self.isForbiddenByte(content[index]) { throw .malformed }
        }
        switch phase {
        case .inFieldBlock where count == 0:
            phase = .complete
            return isComplete
        case .inFieldBlock: try appendField(content, hasControls: hasControls)
        case .beforeStatusLine: try parseStatusLine(content)
        case .complete: if Self.isStatusLine(content) { try parseStatusLine(content) }
        }
        return false
    }

    /// Parses a status line: RFC 9112, section 4. HTTP/2 has no reason phrase.
    private mutating func parseStatusLine(_ line: Span<UInt8>) throws(Fault) {
        guard Self.isStatusLine(line) else { throw .malformed }
        var start = 5
        while start < line.count, line[start] != UInt8(ascii: " ") { start += 1 }
        while start < line.count, line[start] == UInt8(ascii: " ") { start += 1 }
        guard start + 3 <= line.count else { throw .malformed }
        var code = 0
        for index in start..<start + 3 {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(line[index]) else { throw .malformed }
            code = code * 10 + Int(line[index] - UInt8(ascii: "0"))
        }
        guard code >= 100, start + 3 == line.count || line[start + 3] == UInt8(ascii: " ") else { throw .malformed }
        status = code
        presentNameLengths = 0
        lastField = .none
        framingFields.removeAll(keepingCapacity: true)
        fields.removeAll(keepingCapacity: true)
        fields.reserveCapacity(Limits.initialFieldCapacityBytes)
        phase = .inFieldBlock
    }

    private mutating func appendField(_ line: Span<UInt8>, hasControls: Bool) throws(Fault) {
        guard fields.count + line.count < WireLimits.responseFieldBytes else { throw .fieldsTooLong }
        guard !line[0].isBlank else { return try continueField(with: line, hasControls: hasControls) }
        // A line without a field name is dropped, as other clients do.
        guard let nameLength = Self.fieldNameLength(line), nameLength > 0 else {
            lastField = .droppedField
            return
        }
        let name = line.extracting(0..<nameLength)
        if hasControls || name[nameLength - 1].isBlank {
            // libcurl reads such a field in its own way, so the end of the body would be in doubt.
            guard !Self.isFramingFieldName(name) else { throw .malformed }
            guard !hasControls || !Self.isFieldName(name, equalTo: "set-cookie") else {
                // RFC 6265bis, section 5.6, step 1.
                lastField = .droppedField
                return
            }
        }
        presentNameLengths |= Self.lengthBit(nameLength: nameLength)
        if !fields.isEmpty { fields.append(UInt8(ascii: "\n")) }
        let start = fields.count
        appendText(line, hasControls: hasControls)
        guard Self.isFramingFieldName(name) else {
            lastField = .keptField(start: start, isCookie: Self.isFieldName(name, equalTo: "set-cookie"))
            return
        }
        if !framingFields.isEmpty { framingFields.append(UInt8(ascii: "\n")) }
        framingFields += fields[start...]
        lastField = .framingField
    }

    /// Appends a line of an obsolete line folding: RFC 9112, section 5.2. libcurl 8 also delivers an invalid line that
    /// continues no field.
    private mutating func continueField(with line: Span<UInt8>, hasControls: Bool) throws(Fault) {
        switch lastField {
        // libcurl ignores the continuation when it determines the end of the body.
        case .none, .framingField: throw .malformed
        case .droppedField: return
        case .keptField(let start, isCookie: true) where hasControls:
            fields.removeSubrange(max(start - 1, 0)...)
            lastField = .droppedField
        case .keptField:
            var start = 0
            while start < line.count, line[start].isBlank { start += 1 }
            fields.append(UInt8(ascii: " "))
            appendText(line.extracting(start...), hasControls: hasControls)
        }
    }

    /// Appends text with controls other than TAB replaced by spaces, which RFC 9110, section 5.5, allows. Message heads
    /// cannot contain controls.
    private mutating func appendText(_ text: Span<UInt8>, hasControls: Bool) {
        let start = fields.count
        unsafe text.withUnsafeBufferPointer { unsafe fields.append(contentsOf: $0) }
        guard hasControls else { return }
        for index in start..<fields.count where Self.isControlByte(fields[index]) { fields[index] = UInt8(ascii: " ") }
    }

    /// Returns whether any byte is a control other than TAB. Controls are rare, and a loop without early exit compares
    /// sixteen bytes at a time.
    private static func hasControls(_ line: Span<UInt8>) -> Bool {
        unsafe line.withUnsafeBufferPointer { bytes in
            unsafe bytes.reduce(0 as UInt8) { $0 | (isControlByte($1) ? 1 : 0) } != 0
        }
    }

    /// Returns whether a byte is invalid in any line: NUL, or a CR or LF before the line end.
    private static func isForbiddenByte(_ byte: UInt8) -> Bool {
        byte == 0 || byte == UInt8(ascii: "\r") || byte == UInt8(ascii: "\n")
    }

    private static func isControlByte(_ byte: UInt8) -> Bool {
        byte < 0x20 && byte != UInt8(ascii: "\t") || byte == 0x7f
    }

    /// Returns whether a field of this name delimits the body: RFC 9112, section 6.3.
    private static func isFramingFieldName(_ name: Span<UInt8>) -> Bool {
        isFieldName(name, equalTo: "transfer-encoding") || isFieldName(name, equalTo: "content-length")
    }

    /// Compares a name, without blanks at its end, with one in lower case.
    private static func isFieldName(_ name: Span<UInt8>, equalTo wanted: StaticString) -> Bool {
        let count = wanted.utf8CodeUnitCount
        guard name.count >= count, name.count == count || name[count].isBlank else { return false }
        return wanted.withUTF8Buffer { wanted in
            for index in 0..<count where unsafe name[index] | 0x20 != wanted[index] { return false }
            return true
        }
    }

    private static func isStatusLine(_ line: Span<UInt8>) -> Bool {
        line.count > 5 && line[0] == UInt8(ascii: "H") && line[1] == UInt8(ascii: "T")
            && line[2] == UInt8(ascii: "T") && line[3] == UInt8(ascii: "P") && line[4] == UInt8(ascii: "/")
    }

    private static func fieldNameLength(_ line: Span<UInt8>) -> Int? {
        for index in line.indices where line[index] == UInt8(ascii: ":") { return index }
        return nil
    }

    private static func lengthBit(nameLength: Int) -> UInt64 { 1 << UInt64(min(nameLength, 63)) }
}

/// Sanitizer of untrusted text for logs and message heads.
enum Printable {
    /// Returns at most `Limits.sentenceBytes` bytes of `text`, with `?` in place of every byte outside printable ASCII.
    static func sanitizedSentence(_ text: String) -> String {
        let bytes = text.utf8.prefix(Limits.sentenceBytes).map { (0x20...0x7e).contains($0) ? $0 : UInt8(ascii: "?") }
        return String(decoding: bytes, as: UTF8.self)
    }
}
