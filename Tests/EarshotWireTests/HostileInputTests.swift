import EarshotCore
import EarshotWire
import Testing

/// No bytes of a peer make a decoder trap, and each accepted message can be encoded again.
struct HostileInputTests {
    static let seeds = [
        "HELLO EAR/1\nlease: 1\nwindow: 3\n", "FETCH a/b 7 http://h/\npriority: high\ntimeout: 1.5\n\naccept: */*\n",
        "REMOVE a/\n", "QUERY why a b\n", "ACK 18446744073709551615\n",
        "RESULT a b 200\nseq: 1\nurl: http://h/\n\na: b\n",
        "FAILED a b http-status\nseq: 1\nstatus: 404\n", "PROGRESS a b 1/-\n",
        "READY EARW/1\nslots: 3\nholds: 00000000000000ff.1.2\n",
        "DONE 00000000000000ff.1.2 200\nfile: x\n\na: b\n", "LIMITS\nbroker: 00000000000000ff\nspool: /s\n",
        "JOB 00000000000000ff.1.2 http://h/\ntotal: 0.001\n",
    ].map { Array($0.utf8) }

    @Test(arguments: [1, 2, 3] as [UInt64])
    func `mutated heads are refused or read, and what is read encodes and decodes to itself`(seed: UInt64) throws {
        var generator = SplitMix64Generator(seed: seed)
        for _ in 0..<10_000 {
            var head = Self.seeds.randomElement(using: &generator)!
            for _ in 0..<Int.random(in: 0...4, using: &generator) where !head.isEmpty {
                let index = Int.random(in: 0..<head.count, using: &generator)
                switch Int.random(in: 0..<4, using: &generator) {
                case 0: head[index] = .random(in: 0...255, using: &generator)
                case 1: head.remove(at: index)
                case 2: head.insert(.random(in: 0...255, using: &generator), at: index)
                default: head.removeLast(min(head.count, Int.random(in: 0...8, using: &generator)))
                }
            }
            if let message = try? ClientMessage(head: head) {
                #expect(try ClientMessage(head: message.encoded()) == message, "seed \(seed), head \(head)")
            }
            if let message = try? BrokerMessage(head: head) {
                #expect(throws: Never.self, "seed \(seed), head \(head)") { try BrokerMessage(head: message.encoded()) }
            }
            if let message = try? WorkerMessage(head: head) {
                #expect(try WorkerMessage(head: message.encoded()) == message, "seed \(seed), head \(head)")
            }
            if let message = try? PoolMessage(head: head) {
                #expect(try PoolMessage(head: message.encoded()) == message, "seed \(seed), head \(head)")
            }
        }
    }

    @Test(arguments: [
        ("", "bad-message"), ("\n", "bad-message"), ("NOISE a b", "unknown-verb"), ("HELLO EAR/2", "version"),
        ("HELLO", "bad-message"), ("FETCH a//b 1 http://h/", "bad-message"), ("FETCH /a 1 http://h/", "bad-message"),
        ("FETCH a 1", "bad-message"), ("FETCH a 1 http://h/ extra", "bad-message"),
        ("FETCH a 1 http://h/\npriority: urgent", "bad-message"), ("FETCH a 1 http://h/\ntimeout: 0", "bad-message"),
        ("FETCH a 1 http://h/\ntimeout: 1e3", "bad-message"), ("FETCH a 1 http://h/\nretries: 21", "bad-message"),
        ("FETCH a 1 http://h/\n\na: b\r\n", "bad-message"), ("ACK -1", "bad-message"),
        ("ACK 18446744073709551616", "bad-message"), ("HELLO EAR/1\nwindow: 0", "bad-message"),
        ("FETCH  a 1 http://h/", "bad-message"), ("REMOVE a/ 1", "bad-message"),
    ])
    func `a wrong head is refused with its code`(head: String, code: String) {
        #expect(throws: WireError.self) { try ClientMessage(head: Array(head.utf8)) }
        do throws(WireError) {
            _ = try ClientMessage(head: Array(head.utf8))
        } catch {
            #expect(error.code.rawValue == code)
        }
    }

    @Test(
        arguments: [
            ("", ""), ("a: b", "a: b"), ("a: b\n", "a: b"), ("a: b\nc: d\n", "a: b\nc: d"), ("\n", ""),
            ("a: b\n\n", "a: b"), ("\na: b", nil), ("\n\n", nil), ("a: b\n\nc: d", nil), ("a: b\n\n\n", nil),
        ] as [(String, String?)])
    func `HTTP fields with an empty line are refused`(block: String, fields: String?) {
        let message = try? ClientMessage(head: Array("FETCH a 1 http://h/\n\n\(block)".utf8))
        guard case .fetch(let fetch)? = message else {
            #expect(fields == nil)
            return
        }
        #expect(String(decoding: fetch.httpFields, as: UTF8.self) == fields)
    }

    @Test func `the error has the number of the message, whatever is wrong below its first field`() {
        let faults = [
            "no colon", "a: \u{1}", "a: b\r", "\na\u{1}: b", String(repeating: "a: b\n", count: 65),
            "a: " + String(repeating: "b", count: WireLimits.headBytes),
            "\nn: " + String(repeating: "b", count: 1 << 20),
        ]
        for (index, fault) in faults.enumerated() {
            for line in ["FETCH a/b 7 http://h/", "REMOVE a/b 7", "PRIORITY a/b 7 high", "NOVELTY", "FETCH", ""] {
                #expect(refusal(of: "\(line)\nnumber: 3\n\(fault)")?.messageNumber == 3, "\(line), fault \(index)")
            }
            for line in ["HELLO EAR/1", "ACK 1", "READ 1 0 1", "BYE"] {
                #expect(refusal(of: "\(line)\nnumber: 3\n\(fault)")?.messageNumber == nil, "\(line), fault \(index)")
            }
        }
        for field in ["number: 0", "number: x", "number:", "a: b\nnumber: 3", "\nnumber: 3"] {
            #expect(refusal(of: "FETCH a\n\(field)\n")?.messageNumber == nil, "\(field)")
        }
    }

    @Test(arguments: ["REMOVE a\na: b\nnumber: 3\n", "SUBSCRIBE a\nx: y\nz: 1\nnumber: 0\n"])
    func `a number after another field is refused`(head: String) {
        let error = numberedRefusal(of: head)
        #expect(error?.code == .badMessage && error?.messageNumber == nil)
        #expect(error?.detail.contains("first field") == true)
    }

    @Test(arguments: ["REMOVE a\nnumber: 3\nnumber: 3\n", "SUBSCRIBE a\nnumber: 3\nx: y\nnumber: 4\n"])
    func `a second number is refused, and the error has the first`(head: String) {
        let error = numberedRefusal(of: head)
        #expect(error?.code == .badMessage && error?.messageNumber == 3)
        #expect(error?.detail == "number must occur once")
    }

    @Test func `so is that of an answer`() {
        #expect(throws: WireError(.badMessage, "to must be the first field")) {
            try NumberedAnswer(head: Array("ERROR limit\ndetail: d\nto: 3\n".utf8))
        }
        #expect(throws: WireError(.badMessage, "to must occur once")) {
            try NumberedAnswer(head: Array("ERROR limit\nto: 3\nto: 4\n".utf8))
        }
        // Messages that take no number ignore the field.
        #expect(throws: Never.self) { try NumberedMessage(head: Array("ACK 1\na: b\nnumber: 3\n".utf8)) }
        #expect(throws: Never.self) { try NumberedMessage(head: Array("ACK 1\nnumber: 3\nnumber: 4\n".utf8)) }
        #expect(throws: Never.self) { try NumberedAnswer(head: Array("PROGRESS a 1 1/2\nfile: b\nto: 3\n".utf8)) }
    }

    private func numberedRefusal(of head: String) -> WireError? {
        do throws(WireError) {
            _ = try NumberedMessage(head: Array(head.utf8))
            return nil
        } catch {
            return error
        }
    }

    /// Returns the reason why a client's head is rejected; nil if it is accepted.
    private func refusal(of head: String) -> WireError? {
        do throws(WireError) {
            _ = try ClientMessage(head: Array(head.utf8))
            return nil
        } catch {
            return error
        }
    }

    @Test func `of several values of a field the last one alone is read`() throws {
        let fields = "retries: many\nmethod: \u{e9}\nretries: 3\nrestries: many\nmethod: b\nretries: 4\n"
        let head = "FETCH a 7 http://h/\n\(fields)"
        guard case .fetch(let fetch) = try ClientMessage(head: Array(head.utf8)) else {
            Issue.record("not a FETCH")
            return
        }
        #expect(fetch.options.retries == 4)
        #expect(fetch.options.method == "b")
        #expect(throws: WireError.self) {
            try ClientMessage(head: Array("FETCH a 7 http://h/\nretries: 4\nretries: many\n".utf8))
        }
        // The bound counts lines, not names.
        let lines = String(repeating: "retries: 4\n", count: WireLimits.fieldsPerHead + 1)
        #expect(throws: WireError.self) { try ClientMessage(head: Array("FETCH a 7 http://h/\n\(lines)".utf8)) }
    }

    @Test func `names that share a mark are told apart`() throws {
        // All have the same length and the same outer bytes.
        let names = (0..<30).map { "x\(10 + $0)x" }
        let head = "HELLO EAR/1\n" + names.map { "\($0): 1\n" }.joined() + "window: 7\nlease: 3\n"
        guard case .hello(let hello) = try ClientMessage(head: Array(head.utf8)) else {
            Issue.record("not a HELLO")
            return
        }
        #expect(hello.window == 7)
        #expect(hello.leaseMilliseconds == 3_000)
    }

    @Test func `a worker's end of an attempt that cannot be read names the attempt`() {
        do throws(WireError) {
            _ = try WorkerMessage(head: Array("DONE 00000000000000ff.1.2 200\n\na: \u{1}".utf8))
            Issue.record("it was read")
        } catch {
            #expect(error.attempt == AttemptID("00000000000000ff.1.2"))
        }
    }

    @Test func `a head or URL over its bound is refused`() {
        let long = String(repeating: "x", count: WireLimits.headBytes)
        #expect(throws: WireError.self) { try ClientMessage(head: Array("REMOVE \(long)".utf8)) }
        let url = "http://h/" + String(repeating: "x", count: WireLimits.urlBytes)
        #expect(throws: WireError.self) { try ClientMessage(head: Array("FETCH a 1 \(url)".utf8)) }
    }

    @Test func `a value with a line end cannot start a field of its own`() throws {
        var failure = Terminal.Failure(code: "reset", detail: "two\nseq: 99")
        failure.attempts = 1
        let terminal = Terminal(
            handler: HandlerID("a")!, request: RequestID("1")!, sequence: 4, outcome: .failed(failure))
        guard case .terminal(let read) = try BrokerMessage(head: BrokerMessage.terminal(terminal).encoded()) else {
            Issue.record("not a terminal")
            return
        }
        #expect(read.sequence == 4)
    }
}
