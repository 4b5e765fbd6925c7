internal import EarshotHTTP
internal import EarshotWire

/// Result or failure of a flight or of one request, shared by all terminals that it ends in.
struct Outcome {
    /// Answer of an origin.
    struct Response {
        var status: Int
        var url: String
        var length: Int
        var sha256: String?
        var file: String?
        var body: BodyID?
        /// Spool file of the same bytes beside `body`; nil unless a request asked for the other form. `end` decides
        /// which request gets which.
        var copy: String?
        /// Body that the shell writes into `file`.
        var spilled: BodyID?
        var fields: [UInt8]
        var startedAt: Tick
        var endedAt: Tick
        /// Whether the transfer resumed an earlier one.
        var isResumed = false
        /// Whether its body was left out: that of a redirect or an error page, which is not kept.
        var isCut = false
        /// Attempt that received the first byte of a body in a file; nil if the worker did not report the file.
        var generation: AttemptID?
        /// Nil for a transfer.
        var source: Terminal.Source?
    }

    var failure: FailureCode?
    /// Sentence that says more than the code's own; nil for that one.
    var detail: String?
    /// Result, or error page of an `http-status`.
    var response: Response?
    var attempts = 0
    /// Number of interests that hold it, and of functions that are distributing it.
    var holders = 0

    /// Whether it says no more than its code.
    var isBare: Bool { failure != nil && detail == nil && response == nil && attempts == 0 }

    /// Approximate bytes of a terminal in memory besides its fields, its URL and its body: the records of the request
    /// and of the outcome, their strings, and their places in tables.
    static let terminalBytes = 600

    /// Approximate bytes of a terminal with this outcome in memory.
    var memoryBytes: Int {
        guard let response else { return Self.terminalBytes }
        let body = response.body == nil ? 0 : response.length
        return Self.terminalBytes + response.fields.count + response.url.utf8.count + body
    }
}
