internal import EarshotWeb

/// Fuzz target: requests of HTTP clients. The head and a chunked body must not depend on how the input is split.
///
/// The first byte selects the number of bytes per step; the second, whether the input is a body.
enum RequestTarget {
    static func run(_ bytes: [UInt8]) {
        guard bytes.count > 2 else { return }
        let input = Array(bytes.dropFirst(2))
        let step = Int(bytes[0] % 32) + 1
        if bytes[1] % 2 == 0 { readHead(input, step) } else { readBody(input, step) }
    }

    private static func readHead(_ input: [UInt8], _ step: Int) {
        let whole = RequestHead.read(input)
        var (read, searched) = ([UInt8](), 0)
        var reading = RequestHead.Reading.incomplete
        while reading == .incomplete, read.count < input.count {
            read += input[read.count..<min(read.count + step, input.count)]
            reading = RequestHead.read(read, searched: searched)
            searched = read.count
        }
        // A head that is split at the limit may be rejected for its size before a later fault is seen.
        guard read.count < 16_384 else { return }
        precondition(reading == whole, "\(reading), and \(whole)")
        if case .complete(_, let length) = whole {
            precondition(input[..<length].suffix(4).elementsEqual([13, 10, 13, 10]))
        }
    }

    private static func readBody(_ input: [UInt8], _ step: Int) {
        var (all, rest) = (input, [UInt8]())
        var (one, other) = (ChunkedBody(limit: 1_000), ChunkedBody(limit: 1_000))
        let whole = one.read(&all)
        var reading = ChunkedBody.Reading.incomplete
        var taken = 0
        while reading == .incomplete, taken < input.count {
            rest += input[taken..<min(taken + step, input.count)]
            taken = min(taken + step, input.count)
            reading = other.read(&rest)
        }
        precondition(reading == whole, "\(reading), and \(whole)")
        precondition(one.bytes.count <= 1_000 && one.bytes == other.bytes, "other data")
        if whole == .complete { precondition(all == rest + input[taken...], "another end of the body") }
    }
}
