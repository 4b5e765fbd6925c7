/// Name of a handler, under which results are delivered: 1 to 200 visible ASCII bytes in non-empty segments separated
/// by `/`.
public struct HandlerID: Hashable, Sendable, CustomStringConvertible {
    /// The complete name, as on the wire.
    public let description: String

    /// Nil if `text` is not a valid name.
    public init?(_ text: String) {
        guard HandlerID.isValid(text.utf8) else { return nil }
        description = text
    }

    init?(_ bytes: ArraySlice<UInt8>) {
        guard HandlerID.isValid(bytes) else { return nil }
        description = String(decoding: bytes, as: UTF8.self)
    }

    /// First segment of the name. It stands for one application, among which the queue is fair.
    public var root: Substring {
        description[..<(description.utf8.firstIndex(of: Ascii.slash) ?? description.endIndex)]
    }

    static func isValid(_ bytes: some Collection<UInt8>) -> Bool {
        guard (1...WireLimits.handlerBytes).contains(bytes.count) else { return false }
        var previous = Ascii.slash
        for byte in bytes {
            guard byte.isVisible, byte != Ascii.slash || previous != Ascii.slash else { return false }
            previous = byte
        }
        return previous != Ascii.slash
    }
}

/// One handler, or all handlers below a name: the operand of REMOVE and SUBSCRIBE.
public enum HandlerPattern: Hashable, Sendable, CustomStringConvertible {
    case handler(HandlerID)
    /// All handlers that start with this name and a slash. Does not include the handler of this name.
    case subtree(HandlerID)

    /// Nil if `text`, without one trailing slash, is not a handler's name.
    public init?(_ text: String) {
        if text.utf8.last == Ascii.slash {
            guard let handler = HandlerID(String(text.dropLast())) else { return nil }
            self = .subtree(handler)
        } else {
            guard let handler = HandlerID(text) else { return nil }
            self = .handler(handler)
        }
    }

    public var description: String {
        switch self {
        case .handler(let handler): handler.description
        case .subtree(let handler): handler.description + "/"
        }
    }

    /// Returns whether the pattern includes `handler`. O(length of the name).
    public func matches(_ handler: HandlerID) -> Bool {
        switch self {
        case .handler(let own): own == handler
        case .subtree(let own):
            handler.description.utf8.count > own.description.utf8.count
                && handler.description.utf8.starts(with: own.description.utf8)
                && handler.description.utf8.dropFirst(own.description.utf8.count).first == Ascii.slash
        }
    }
}

/// Request ID chosen by the client, unique in its handler: 1 to 64 visible ASCII bytes.
public struct RequestID: Hashable, Sendable, CustomStringConvertible {
    public let description: String

    /// Nil if `text` is not a valid ID.
    public init?(_ text: String) {
        guard Ascii.isIdentifier(text.utf8) else { return nil }
        description = text
    }

    init?(_ bytes: ArraySlice<UInt8>) {
        guard Ascii.isIdentifier(bytes) else { return nil }
        description = String(decoding: bytes, as: UTF8.self)
    }
}

/// Identity of one run of a broker: 64 random bits, 16 lower-case hexadecimal digits on the wire.
public struct BrokerInstance: Hashable, Sendable, CustomStringConvertible {
    public let rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }

    /// Nil if `text` is not 16 lower-case hexadecimal digits.
    public init?(_ text: some StringProtocol) {
        guard let value = Hexadecimal.number(text) else { return nil }
        rawValue = value
    }

    public var description: String { Hexadecimal.text(rawValue) }
}

/// Secret with which a connection resumes a session: 128 random bits, 32 lower-case hexadecimal digits on the wire.
public struct SessionToken: Hashable, Sendable, CustomStringConvertible {
    private let high: UInt64
    private let low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Nil if `text` is not 32 lower-case hexadecimal digits.
    public init?(_ text: String) {
        guard let pair = Hexadecimal.pair(text) else { return nil }
        self.init(high: pair.high, low: pair.low)
    }

    public var description: String { Hexadecimal.text(high) + Hexadecimal.text(low) }
}

/// Identity of an attempt, unique across restarts of the broker: `instance.flight.attempt`.
public struct AttemptID: Hashable, Sendable, CustomStringConvertible {
    public var broker: BrokerInstance
    /// Number of the flight in that run of the broker.
    public var flight: UInt64
    /// Number of the attempt in its flight, from 1.
    public var attempt: UInt32

    public init(broker: BrokerInstance, flight: UInt64, attempt: UInt32) {
        self.broker = broker
        self.flight = flight
        self.attempt = attempt
    }

    /// Nil if `text` is not `instance.flight.attempt`.
    public init?(_ text: String) { self.init(Array(text.utf8)[...]) }

    init?(_ bytes: ArraySlice<UInt8>) {
        guard let first = bytes.firstIndex(of: Ascii.dot), let last = bytes.lastIndex(of: Ascii.dot), first < last,
            let broker = Hexadecimal.number(bytes[..<first]), let flight = Decimal.unsigned(bytes[(first + 1)..<last]),
            let attempt = Decimal.unsigned(bytes[(last + 1)...]).flatMap({ UInt32(exactly: $0) })
        else { return nil }
        self.init(broker: BrokerInstance(rawValue: broker), flight: flight, attempt: attempt)
    }

    public var description: String {
        var text: [UInt8] = []
        Hexadecimal.append(broker.rawValue, to: &text)
        text.append(addingCapacity: 32) {
            $0.append(Ascii.dot)
            Decimal.append(flight, to: &$0)
            $0.append(Ascii.dot)
            Decimal.append(UInt64(attempt), to: &$0)
        }
        return String(decoding: text, as: UTF8.self)
    }
}

extension HandlerID {
    /// Names of all subtrees that contain this handler, shortest first: `a` and `a/b` for `a/b/c`.
    public var prefixes: [HandlerID] {
        description.utf8.indices.filter { description.utf8[$0] == Ascii.slash }
            .compactMap { HandlerID(String(description[..<$0])) }
    }
}
