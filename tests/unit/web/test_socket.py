from celeriac.web.pages.socket import Budget


def test_a_link_may_send_some_at_once_and_then_so_many_a_second() -> None:
    budget = Budget(0.0)

    at_once = sum(budget.spend(0.0) for _ in range(1000))
    a_second_later = sum(budget.spend(1.0) for _ in range(1000))
    much_later = sum(budget.spend(1000.0) for _ in range(1000))

    assert (at_once, a_second_later, much_later) == (300, 60, 300)
