internal import EarshotHTTP
internal import EarshotWire

/// The header lines of a response as libcurl hands them over, reduced to the last block.
///
/// `start -> block -> complete`, and from `complete` back to `block` when another status line comes: blocks of interim
/// answers (1xx) and of a proxy's CONNECT are dropped that way. Lines after the last block are trailers, and dropped.
struct ResponseHead {
    /// Why a response cannot be told.
    enum Fault: Error, Equatable {
        /// A status line that is none, a NUL or a bare CR or LF in a line, or a folded line that continues none.
        case malformed
        /// More fields than `WireLimits.responseFieldBytes`.
        case tooLong
    }

    private enum Phase {
        case start
        case block
        case complete
    }

    private var phase = Phase.start
    /// The last status line's code; 0 before one came.
    private(set) var status = 0
    /// The fields of the last block, a LF between two and none at the end; folded ones in one line.
    private(set) var fields: [UInt8] = []

    /// Those of `fields` that tell where the body ends, for nobody to search for them; others may be among them.
    private(set) var framingFields: [UInt8] = []
    /// Whether the last of `fields` is among them.
    private var isFraming = false
    /// The lengths of the names in `fields`, a bit for each, the last for all that are longer.
    private var nameLengths: UInt64 = 0
    /// Those of `content-length` and `transfer-encoding`.
    private static let framingLengths = bit(nameLength: 14) | bit(nameLength: 17)

    /// Whether the last block is there to its end, and is that of an answer: not of an interim one.
    var isComplete: Bool { phase == .complete && status >= 200 }

    /// Whether a field of this name can be in `fields`. Most names that are not there have another length than all that
    /// are, so that nobody has to search for them.
    func mayHave(_ name: String) -> Bool { nameLengths & Self.bit(nameLength: name.utf8.count) != 0 }

    /// Whether a field says where the body ends: RFC 9112, section 6.3.
    var isFramed: Bool {
        let fields = HeaderFields(lines: framingFields)
        return fields.contains("content-length")
            || fields.values("transfer-encoding").contains { $0.lowercased().contains("chunked") }
    }

    /// Takes one line with its line end.
    ///
    /// - Returns: whether it made the head complete.
    mutating func append(_ line: Span<UInt8>) throws(Fault) -> Bool {
        var count = line.count
        if count > 0, line[count - 1] == UInt8(ascii: "\n") { count -= 1 }
        if count > 0, line[count - 1] == UInt8(ascii: "\r") { count -= 1 }
        let content = line.extracting(0..<count)
        let hasControls = Self.hasControls(content)
        if hasControls {
            for index in content.indices where Self.isForbidden(content[index]) { throw .malformed }
        }
        switch phase {
        case .block where count == 0:
            phase = .complete
            return isComplete
        case .block: try appendField(content, hasControls: hasControls)
        case .start: try begin(content)
        case .complete: if Self.isStatusLine(content) { try begin(content) }
        }
        return false
    }

    /// A status line: RFC 9112, section 4, and without a reason in HTTP/2.
    private mutating func begin(_ line: Span<UInt8>) throws(Fault) {
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
        nameLengths = 0
        isFraming = false
        framingFields.removeAll(keepingCapacity: true)
        fields.removeAll(keepingCapacity: true)
        fields.reserveCapacity(Limits.usualFieldBytes)
        phase = .block
    }

    private mutating func appendField(_ line: Span<UInt8>, hasControls: Bool) throws(Fault) {
        guard fields.count + line.count < WireLimits.responseFieldBytes else { throw .tooLong }
        guard Self.isBlank(line[0]) else {
            // What has no name is no field: it is dropped, as clients do.
            guard let nameLength = Self.nameLength(line), nameLength > 0 else { return }
            let bit = Self.bit(nameLength: nameLength)
            nameLengths |= bit
            isFraming = bit & Self.framingLengths != 0
            if !fields.isEmpty { fields.append(UInt8(ascii: "\n")) }
            if isFraming, !framingFields.isEmpty { framingFields.append(UInt8(ascii: "\n")) }
            appendText(line, hasControls: hasControls)
            return
        }
        // Obsolete line folding: RFC 9112, section 5.2. A line that continues none is invalid; libcurl 8 lets it pass.
        guard !fields.isEmpty else { throw .malformed }
        var start = 0
        while start < line.count, Self.isBlank(line[start]) { start += 1 }
        fields.append(UInt8(ascii: " "))
        if isFraming { framingFields.append(UInt8(ascii: " ")) }
        appendText(line.extracting(start...), hasControls: hasControls)
    }

    /// Controls other than the tab as spaces: RFC 9110, section 5.5, lets a recipient, and no head may carry one.
    private mutating func appendText(_ text: Span<UInt8>, hasControls: Bool) {
        let place = fields.count
        unsafe text.withUnsafeBufferPointer { unsafe fields.append(contentsOf: $0) }
        if hasControls {
            for index in place..<fields.count {
                let byte = fields[index]
                if byte < 0x20 && byte != UInt8(ascii: "\t") || byte == 0x7f { fields[index] = UInt8(ascii: " ") }
            }
        }
        if isFraming { framingFields += fields[place...] }
    }

    /// Whether any byte is a control. Hardly a line has one, and this passes over sixteen bytes at a time, as a loop
    /// that ends with the first could not.
    private static func hasControls(_ line: Span<UInt8>) -> Bool {
        unsafe line.withUnsafeBufferPointer { bytes in
            unsafe bytes.reduce(0 as UInt8) { $0 | ($1 < 0x20 || $1 == 0x7f ? 1 : 0) } != 0
        }
    }

    /// What may stand in no line: NUL, and a CR or LF that does not end it.
    private static func isForbidden(_ byte: UInt8) -> Bool {
        byte == 0 || byte == UInt8(ascii: "\r") || byte == UInt8(ascii: "\n")
    }

    private static func isStatusLine(_ line: Span<UInt8>) -> Bool {
        line.count > 5 && line[0] == UInt8(ascii: "H") && line[1] == UInt8(ascii: "T")
            && line[2] == UInt8(ascii: "T") && line[3] == UInt8(ascii: "P") && line[4] == UInt8(ascii: "/")
    }

    private static func nameLength(_ line: Span<UInt8>) -> Int? {
        for index in line.indices where line[index] == UInt8(ascii: ":") { return index }
        return nil
    }

    private static func bit(nameLength: Int) -> UInt64 { 1 << UInt64(min(nameLength, 63)) }

    private static func isBlank(_ byte: UInt8) -> Bool { byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
}
