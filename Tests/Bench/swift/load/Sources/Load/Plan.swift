import Glibc

/// Requests of a client, with the arguments of `load.c`.
public struct Plan: Sendable {
    public var server = ""
    public var prefix = ""
    public var suffix = ""
    public var requests = 10000
    public var outstanding = 100
    public var files = 10000
    public var size = 1024
    public var sums = false
    public var extra = ""

    /// Reads the arguments; ends the program if they are invalid.
    public init() {
        var rest = CommandLine.arguments.dropFirst()
        while let name = rest.popFirst() {
            if name == "--sums" {
                sums = true
                continue
            }
            guard let value = rest.popFirst() else { Self.refuse(name) }
            switch name {
            case "--server": server = value
            case "--extra": extra = value
            case "--prefix": prefix = value
            case "--suffix": suffix = value
            case "--requests": requests = Self.number(value, of: name)
            case "--outstanding": outstanding = Self.number(value, of: name)
            case "--files": files = Self.number(value, of: name)
            case "--size": size = Self.number(value, of: name)
            case "--clients": if value != "1" { Self.refuse(name) }
            default: Self.refuse(name)
            }
        }
    }

    func url(_ number: Int) -> String {
        let digits = String(number % files)
        return prefix + String(repeating: "0", count: max(0, 6 - digits.count)) + digits + suffix
    }

    private static func number(_ text: String, of name: String) -> Int {
        guard let number = Int(text), number > 0 else { refuse(name) }
        return number
    }

    private static func refuse(_ name: String) -> Never {
        let line = "wrong argument: \(name)\n"
        write(STDERR_FILENO, line, line.utf8.count)
        exit(64)
    }
}
