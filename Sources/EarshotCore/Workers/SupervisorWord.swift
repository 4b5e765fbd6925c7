/// What a supervisor and its broker say to each other beside settings and failures, a line each.
public enum SupervisorWord {
    /// The supervisor asks whether the broker's loop runs; the same is the answer.
    public static let alive = "alive"
    /// Before the number of workers that the broker has taken in, told whenever it is another one.
    public static let workers = "taken-in"
}
