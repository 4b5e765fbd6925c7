internal import EarshotWire

/// Benchmark of decoding and encoding messages of typical size.
struct WireBench {
    private let messageHeads: [[UInt8]]
    private let resultMessages: [BrokerMessage]
    /// Total output size, which prevents the optimizer from removing the work.
    private var outputBytes = 0

    init() {
        messageHeads = (0..<CoreBench.sampleCount).map { number in
            Array(
                """
                FETCH gallery/42 \(number) https://images.example.org/thumbnails/2026/\(100_000 + number).jpg
                priority: high
                timeout: 30
                deliver: auto

                accept: image/avif, image/webp, */*

                """.utf8)
        }
        resultMessages = (0..<CoreBench.sampleCount).map { .terminal(Self.makeTerminal($0)) }
    }

    /// Runs one operation per message, for a tool that counts only instructions inside `counted…`. Returns their
    /// number.
    consuming func runCounted(decodes: Bool) -> Int {
        if decodes { countedDecoding() } else { countedEncoding() }
        precondition(outputBytes > 0, "nothing was done")
        return CoreBench.sampleCount
    }

    @inline(never)
    private mutating func countedDecoding() {
        for head in messageHeads {
            guard case .fetch(let fetch)? = try? ClientMessage(head: head) else { preconditionFailure("no FETCH") }
            outputBytes += fetch.url.utf8.count
        }
    }

    @inline(never)
    private mutating func countedEncoding() {
        for result in resultMessages { outputBytes += result.encoded().count }
    }

    private static func makeTerminal(_ number: Int) -> Terminal {
        guard let handler = HandlerID("gallery/42"), let request = RequestID(String(number)) else {
            preconditionFailure("the names are no names")
        }
        var response = Terminal.Response(
            url: "https://images.example.org/thumbnails/2026/\(100_000 + number).jpg")
        response.bodyByteCount = 1_024
        response.sha256 = String(repeating: "0123456789abcdef", count: 4)
        response.queuedMilliseconds = 3
        response.elapsedMilliseconds = 12
        response.httpFields = Array(
            """
            Server: nginx/1.22.1
            Date: Sat, 21 Nov 2026 12:00:00 GMT
            Content-Type: image/jpeg
            Content-Length: 1024
            Last-Modified: Sat, 21 Nov 2026 11:00:00 GMT
            Connection: keep-alive
            ETag: "6920d0e0-400"
            Accept-Ranges: bytes
            """.utf8)
        return Terminal(
            handler: handler, request: request, sequence: UInt64(number + 1),
            outcome: .result(status: 200, response))
    }
}
