/// Entry of a delivery window, in four bytes.
struct DueTerminal: Hashable {
    enum Place {
        /// In memory: the interest by number.
        case memory(Int32)
        /// In the shell's file: the number of a waiting terminal.
        case file(Int32)
        /// A withdrawn terminal, whose sequence number is kept.
        case hole
    }

    static let hole = DueTerminal(number: -1)

    /// Number of an interest, -1 for a hole, or -2 for waiting terminal 0, -3 for 1, …
    private let number: Int32

    init(interest: Int32) {
        number = interest
    }

    init(waiting: Int32) {
        number = -2 - waiting
    }

    private init(number: Int32) {
        self.number = number
    }

    var place: Place {
        if number >= 0 { return .memory(number) }
        return number == -1 ? .hole : .file(-2 - number)
    }
}
