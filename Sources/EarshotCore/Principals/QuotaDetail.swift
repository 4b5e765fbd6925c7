/// Sentences of refusals and failures with the code `quota`.
enum QuotaDetail {
    static let spool =
        "The bodies that this user has not acknowledged reach the setting spool-per-user; acknowledge some of them."
    static let memory =
        "This user has not acknowledged 256 MiB of results in memory: bodies of at most 64 KiB, fields, URLs; acknowledge some."
    static let message =
        "The heads or bodies of this user's open requests take a quarter of their memory; wait for some of them."
    static let request =
        "This user has as many open requests as the setting requests-per-user permits; wait for some, or remove some."
    static let durable =
        "This user's durable requests and results reach the setting durable-per-user; acknowledge some of them."
    static let subscription = "this user has a quarter of all subscriptions; unsubscribe from some first"
    static let cookies =
        "the cookie jars of this user take a quarter of their memory; remove the handlers of a root, or wait for cookie-time"
}
