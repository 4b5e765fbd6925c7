/// HOLDS: an attempt of an earlier broker that a worker still runs, or has finished without sending its terminal.
public struct HeldAttempt: Equatable, Sendable {
    public var attempt: AttemptID
    /// The URL of its JOB.
    public var url: String
    /// The flight identity of its JOB; nil if no other broker may adopt the attempt.
    public var flight: FlightIdentity?
    /// Decoded bytes received so far.
    public var receivedBytes = 0
    /// Announced length of the whole body in bytes; nil if unknown.
    public var totalBytes: Int?
    /// Maximum size of the decoded body in bytes, including raises; nil for no limit.
    public var maxBytes: Int?
    /// Time since the JOB arrived, at most a day.
    public var elapsedMilliseconds = 0
    /// File of the growing body, with the fields of its response if a later attempt may continue it.
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
