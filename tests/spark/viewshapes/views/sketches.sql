select o.customer_id, hll_sketch_estimate(hll_sketch_agg(o.status)) as statuses,
       theta_sketch_estimate(theta_sketch_agg(o.cents)) as amounts
from orders o
group by o.customer_id
