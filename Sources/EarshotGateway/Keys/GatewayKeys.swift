internal import EarshotWire

/// Keys of a gateway: its own secret key, and those of its clients.
public struct GatewayKeys: Equatable, Sendable {
    /// Maximum number of clients: more than an administrator maintains.
    public static let maximumClients = 10_000

    /// Secret key of the bus, 40 characters of Z85.
    public let secretKey: String
    private let clients: [String: ClientKey]

    /// - Parameter clients: clients with different names and different public keys.
    public init(secretKey: String, clients: [ClientKey]) {
        self.secretKey = secretKey
        self.clients = Dictionary(clients.map { ($0.publicKey, $0) }) { first, _ in first }
    }

    /// Number of clients.
    public var count: Int { clients.count }

    /// Returns the client of a public key, if it is accepted at a time in seconds since 1970.
    func client(_ publicKey: String, at seconds: Int64) -> ClientKey? {
        guard let client = clients[publicKey], client.isValid(at: seconds) else { return nil }
        return client
    }

    /// Returns the principals of the clients that are accepted at a time in seconds since 1970. Workers have no
    /// sessions.
    func principals(at seconds: Int64) -> [PrincipalName] {
        clients.values.filter { $0.role != .worker && $0.isValid(at: seconds) }.map(\.principal)
    }

    /// The next time after `seconds` at which a key expires; nil for none.
    func nextExpiry(after seconds: Int64) -> Int64? {
        clients.values.compactMap { $0.expiry?.secondsSince1970 }.filter { $0 > seconds }.min()
    }
}

/// Time from which a key is refused: `2027-01-31` (the start of that day) or `2027-01-31T18:00:00Z`, in UTC.
public struct KeyExpiry: Equatable, Sendable, CustomStringConvertible {
    public let description: String
    /// Seconds since 1970-01-01 00:00 UTC.
    public let secondsSince1970: Int64

    /// Nil if `text` is neither a date nor a time in one of these forms.
    public init?(_ text: String) {
        let bytes = Array(text.utf8)
        guard bytes.count == 10 || bytes.count == 20, bytes[4] == UInt8(ascii: "-"), bytes[7] == UInt8(ascii: "-"),
            let year = Self.decimalNumber(bytes[0..<4]), let month = Self.decimalNumber(bytes[5..<7]),
            let day = Self.decimalNumber(bytes[8..<10]), year >= 1970, (1...12).contains(month),
            (1...Self.days(in: month, of: year)).contains(day)
        else { return nil }
        var seconds = Self.daysSinceEpoch(year: year, month: month, day: day) * 86_400
        if bytes.count == 20 {
            guard bytes[10] == UInt8(ascii: "T"), bytes[13] == UInt8(ascii: ":"), bytes[16] == UInt8(ascii: ":"),
                bytes[19] == UInt8(ascii: "Z"), let hour = Self.decimalNumber(bytes[11..<13]),
                let minute = Self.decimalNumber(bytes[14..<16]), let second = Self.decimalNumber(bytes[17..<19]),
                hour < 24, minute < 60, second < 60
            else { return nil }
            seconds += Int64(hour * 3_600 + minute * 60 + second)
        }
        description = text
        self.secondsSince1970 = seconds
    }

    private static func decimalNumber(_ digits: ArraySlice<UInt8>) -> Int? {
        var value = 0
        for digit in digits {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(digit) else { return nil }
            value = value * 10 + Int(digit - UInt8(ascii: "0"))
        }
        return value
    }

    private static func isLeap(_ year: Int) -> Bool { year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) }

    private static func days(in month: Int, of year: Int) -> Int {
        switch month {
        case 2: isLeap(year) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }

    /// Days between 1970-01-01 and a date of the Gregorian calendar.
    private static func daysSinceEpoch(year: Int, month: Int, day: Int) -> Int64 {
        let past = year - 1
        var days = year * 365 + past / 4 - past / 100 + past / 400
        let start = 1970 * 365 + 1969 / 4 - 1969 / 100 + 1969 / 400
        for earlier in 1..<month { days += Self.days(in: earlier, of: year) }
        return Int64(days - start + day - 1)
    }
}
