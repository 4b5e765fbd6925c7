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
        guard let value = Hexadecimal.parse(text) else { return nil }
        rawValue = value
    }

    public var description: String { Hexadecimal.text(rawValue) }
}

/// Secret with which a connection resumes a session: 128 random bits, 32 lower-case hexadecimal digits on the wire.
public struct SessionToken: Hashable, Sendable, CustomStringConvertible {
    private let highBits: UInt64
    private let lowBits: UInt64

    public init(highBits: UInt64, lowBits: UInt64) {
        self.highBits = highBits
        self.lowBits = lowBits
    }

    /// Nil if `text` is not 32 lower-case hexadecimal digits.
    public init?(_ text: String) {
        guard let pair = Hexadecimal.parse128Bits(text) else { return nil }
        self.init(highBits: pair.high, lowBits: pair.low)
    }

    public var description: String { Hexadecimal.text(highBits) + Hexadecimal.text(lowBits) }
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
            let broker = Hexadecimal.parse(bytes[..<first]),
            let flight = Decimal.parseUnsigned(bytes[(first + 1)..<last]),
            let attempt = Decimal.parseUnsigned(bytes[(last + 1)...]).flatMap({ UInt32(exactly: $0) })
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
    public var ancestorSubtrees: [HandlerID] {
        description.utf8.indices.filter { description.utf8[$0] == Ascii.slash }
            .compactMap { HandlerID(String(description[..<$0])) }
    }
}

/// Identity of a body's bytes, stable across restarts of the broker. A body that starts over gets a new generation, a
/// resumed one keeps it.
public struct Generation: Hashable, Sendable, CustomStringConvertible {
    /// Text on the wire, 1 to 64 visible bytes.
    public let description: String

    /// Nil if `text` is not a generation.
    public init?(_ text: String) {
        guard Ascii.isIdentifier(text.utf8) else { return nil }
        description = text
    }

    /// The generation of the body that this attempt starts.
    public init(_ attempt: AttemptID) {
        description = attempt.description
    }
}

extension HeadReader {
    static func parseGeneration(_ text: HeadText) throws(WireError) -> Generation {
        guard let generation = Generation(text.string) else {
            throw WireError(.badMessage, "generation must be 1 to \(WireLimits.identifierBytes) visible ASCII bytes")
        }
        return generation
    }
}

/// Name of a principal, the authenticated identity behind a session: 1 to 64 ASCII letters, digits and `. _ : @ -`.
///
/// `uid:1000` is a local user, `key:laptop` the holder of a key of the gateway.
public struct PrincipalName: Hashable, Sendable, CustomStringConvertible {
    public let description: String

    /// Nil if `text` is not a valid name.
    public init?(_ text: String) {
        guard (1...WireLimits.identifierBytes).contains(text.utf8.count), text.utf8.allSatisfy(Self.isAllowedByte)
        else {
            return nil
        }
        description = text
    }

    /// Whether the gateway may name it: `key:NAME`, or `node:NAME` for the nodes of a cluster.
    public var canBeNamedByGateway: Bool { isClientKey || description.hasPrefix("node:") }

    /// Whether it is the holder of a key of the gateway, `key:NAME`.
    public var isClientKey: Bool { description.hasPrefix("key:") }

    /// Whether it is a local user, `uid:NUMBER`, which the HTTP door may name.
    public var isLocalUser: Bool { description.hasPrefix("uid:") && UInt32(description.dropFirst(4)) != nil }

    private static func isAllowedByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), Ascii.zero...Ascii.colon,
            Ascii.dot, UInt8(ascii: "_"), UInt8(ascii: "@"), UInt8(ascii: "-"):
            true
        default: false
        }
    }
}

/// Secret with which the gateway states the principal of a session: 256 random bits, 64 lower-case hexadecimal digits
/// on the wire.
public struct GatewayProof: Equatable, Sendable, CustomStringConvertible {
    public let description: String

    /// Nil if `text` is not 64 lower-case hexadecimal digits.
    public init?(_ text: String) {
        guard Ascii.isSHA256(Array(text.utf8)[...]) else { return nil }
        description = text
    }

    /// Compares two secrets in constant time.
    public static func == (_ left: GatewayProof, _ right: GatewayProof) -> Bool {
        ConstantTime.isEqual(left.description.utf8, right.description.utf8)
    }
}
