/// HOLDS: an attempt of an earlier broker that a worker still runs, or has ended and not told of.
public struct HeldAttempt: Equatable, Sendable {
    public var attempt: AttemptID
    /// As in its JOB.
    public var url: String
    /// What its JOB said of its flight; nil if no other may go on with it.
    public var flight: FlightIdentity?
    /// Decoded bytes that have come.
    public var receivedBytes = 0
    /// Bytes of the whole; nil if that is not known.
    public var totalBytes: Int?
    /// Decoded bytes of body after which it is stopped, raises included; nil for no limit.
    public var maxBytes: Int?
    /// Since its JOB came; at most a day.
    public var elapsedMilliseconds = 0
    /// Where its body grows, with the fields of its response if a later attempt may go on with it.
    public var part: BodyPart?

    public init(attempt: AttemptID, url: String) {
        self.attempt = attempt
        self.url = url
    }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.expectOperands(2)
        attempt = try reader.attempt(0)
        url = try reader.operand(1, "URL").string
        part = try BodyPart(reader)
        for (name, value) in reader.fields {
            switch name {
            case "flight": flight = try HeadReader.flight(value)
            case "received": receivedBytes = try HeadReader.count(value, "received")
            case "total": totalBytes = try HeadReader.count(value, "total")
            case "max-bytes": maxBytes = try HeadReader.count(value, "max-bytes")
            case "elapsed-ms":
                elapsedMilliseconds = try HeadReader.integer(value, in: 0...WireLimits.seconds * 1000, "elapsed-ms")
            default: break
            }
        }
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("HOLDS")
        writer.operand(attempt)
        writer.operand(url)
        writer.field("flight", flight?.description)
        writer.field("received", receivedBytes)
        writer.field("total", totalBytes)
        writer.field("max-bytes", maxBytes)
        writer.field("elapsed-ms", elapsedMilliseconds)
        writer.field("file", part?.file)
        return writer.finished(httpFields: part?.httpFields ?? [])
    }
}
