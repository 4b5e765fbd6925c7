/// Message of a client with its number in the session.
public struct NumberedMessage: Equatable, Sendable {
    public var message: ClientMessage
    /// From 1, below 2^63; nil for a message without a number.
    public var number: UInt64?

    public init(_ message: ClientMessage, number: UInt64? = nil) {
        self.message = message
        self.number = number
    }

    /// - Throws: `WireError` for bytes that are not a valid message.
    public init(head: [UInt8]) throws(WireError) {
        do throws(WireError) {
            let reader = try HeadReader(head)
            message = try ClientMessage.decoded(reader)
            number = message.canHaveNumber ? try reader.firstNumber("number") : nil
        } catch {
            throw ClientMessage.addingNumber(to: error, from: head)
        }
    }

    /// Returns the head frame.
    public func encoded() -> [UInt8] { HeadNumber.insertingField("number", number, into: message.encoded()) }
}

extension ClientMessage {
    /// Whether the verb takes a number. HELLO begins the numbers; ACK, READ and BYE have no answer that names one.
    public var canHaveNumber: Bool {
        switch self {
        case .hello, .acknowledge, .readBody, .bye: false
        case .fetch, .retry, .removeHandlers, .removeRequest, .subscribe, .unsubscribe, .setPriority, .storeCookies,
            .query, .changeSetting, .takeFile:
            true
        }
    }

    /// Whether OK answers the message, if it has a number.
    public var isAnsweredByOK: Bool {
        switch self {
        case .subscribe, .unsubscribe, .setPriority, .storeCookies: true
        case .fetch(let fetch): !fetch.options.subscribes && !fetch.options.isDurable
        default: false
        }
    }

    /// Whether the message counts as unanswered until its answer is due. A FETCH that is answered by terminals has no
    /// other answer, and the client sends a QUERY again.
    public var countsAsUnanswered: Bool {
        switch self {
        case .fetch(let fetch): fetch.options.isDurable || !fetch.options.subscribes
        case .query: false
        default: canHaveNumber
        }
    }
}

/// Message of the broker with the number of the message that it answers.
public struct NumberedAnswer: Equatable, Sendable {
    public var message: BrokerMessage
    /// Nil for a message that answers none, or one without a number.
    public var answeredNumber: UInt64?

    public init(_ message: BrokerMessage, answeredNumber: UInt64? = nil) {
        self.message = message
        self.answeredNumber = answeredNumber
    }

    /// - Throws: `WireError` for bytes that are not a valid message.
    public init(head: [UInt8]) throws(WireError) {
        let reader = try HeadReader(head)
        message = try BrokerMessage.decoded(reader)
        answeredNumber = message.isReply ? try reader.firstNumber("to") : nil
    }

    /// Returns the head frame.
    public func encoded() -> [UInt8] { HeadNumber.insertingField("to", answeredNumber, into: message.encoded()) }
}

/// Number in the first field of a head, where it can be found even if a later line is malformed.
enum HeadNumber {
    /// Returns the number of a head of any form; nil without a valid one.
    static func number(ofField name: StaticString, in head: [UInt8]) -> UInt64? {
        guard let end = head.firstIndex(of: Ascii.lineFeed) else { return nil }
        let line = head[(end + 1)...].prefix(64).prefix { $0 != Ascii.lineFeed }
        guard let colon = line.firstIndex(of: Ascii.colon), line[..<colon].elementsEqual("\(name)".utf8) else {
            return nil
        }
        let words = line[(colon + 1)...].split(separator: Ascii.space)
        guard words.count == 1, let number = Decimal.parseUnsigned(words[0]), validNumbers.contains(number) else {
            return nil
        }
        return number
    }

    static func insertingField(_ name: StaticString, _ number: UInt64?, into head: [UInt8]) -> [UInt8] {
        guard let number, let end = head.firstIndex(of: Ascii.lineFeed) else { return head }
        var head = head
        head.insert(contentsOf: "\(name): \(number)\n".utf8, at: end + 1)
        return head
    }

    private static let validNumbers: ClosedRange<UInt64> = 1...UInt64(Int.max)
}

extension HeadReader {
    /// Returns the number in the first field, if that has this name.
    ///
    /// - Throws: `WireError` if another field has the name. The sender could not recognize the answer to such a
    ///   message, or would take it for the answer to another.
    fileprivate func firstNumber(_ name: String) throws(WireError) -> UInt64? {
        var iterator = fields.makeIterator()
        guard let first = iterator.next() else { return nil }
        guard first.name == name else {
            guard fields[name] == nil else { throw WireError(.badMessage, "\(name) must be the first field") }
            return nil
        }
        guard !repeatsFirstField else { throw WireError(.badMessage, "\(name) must occur once") }
        return UInt64(try HeadReader.parseInteger(first.value, in: 1...Int.max, named: name))
    }
}
