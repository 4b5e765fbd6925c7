/// Entry of a delivery window, in four bytes.
struct DueTerminal: Hashable {
    enum Place {
        /// In memory, as the interest with this number.
        case memory(Int32)
        /// In the shell's file, as the waiting terminal with this number.
        case file(Int32)
        /// A withdrawn terminal whose sequence number stays in use.
        case hole
    }

    static let hole = DueTerminal(number: -1)

    /// Number of the interest; -1 for a hole; -2 - n for waiting terminal n.
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
